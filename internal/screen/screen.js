// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0
"use strict";

// The page is whole without this. It keeps what is shown up to date, stops without a
// reload, and explains while one types. The server makes all of the HTML.
const now = document.getElementById("now");
const live = document.getElementById("live");
const parse = (html) => new DOMParser().parseFromString(html, "text/html").body;
let find = new URLSearchParams(location.search).get("find") || "";
const query = () => (find ? "?find=" + encodeURIComponent(find) : "");

// change makes old equal to next, and leaves alone what is equal: the focus, what is
// marked, and how far it is scrolled stay.
function change(old, next) {
	if (old.nodeType !== Node.ELEMENT_NODE) {
		if (old.data !== next.data) old.data = next.data;
		return;
	}
	for (const { name } of [...old.attributes]) {
		// What somebody has opened stays open.
		if (!next.hasAttribute(name) && name !== "open") old.removeAttribute(name);
	}
	for (const { name, value } of next.attributes) {
		if (old.getAttribute(name) !== value) old.setAttribute(name, value);
	}
	const named = new Map([...old.children].filter((c) => c.id).map((c) => [c.id, c]));
	let at = old.firstChild;
	for (const child of [...next.childNodes]) {
		let same = child.id ? named.get(child.id) : at;
		if (same && (same.nodeName !== child.nodeName || (same.id || "") !== (child.id || ""))) same = null;
		if (same && same === at) at = at.nextSibling;
		else old.insertBefore(same || child, at);
		if (same) change(same, child);
	}
	while (at) {
		const gone = at;
		at = at.nextSibling;
		gone.remove();
	}
}

// Rows must not move below the pointer of somebody who is about to stop one.
const aims = () => matchMedia("(hover: hover)").matches && now.querySelector("#running table:hover, #running .stop :focus-visible");

function show(html, always) {
	const next = parse(html);
	const finding = document.activeElement?.name === "find";
	if (!always && (aims() || finding)) {
		next.querySelector("#running")?.replaceWith(now.querySelector("#running").cloneNode(true));
	}
	const shell = document.createElement("main");
	shell.id = now.id;
	shell.append(...next.childNodes);
	change(now, shell);
	document.title = now.querySelector("h1").textContent + " · " + document.title.split(" · ").pop();
	live.textContent = (aims() ? "Live; rows wait while you point at them" : "Live") + ", " + new Date().toISOString().slice(11, 19) + " UTC";
}

async function ask(path) {
	const answer = await fetch("guard/" + path);
	if (!answer.ok) throw new Error(await answer.text());
	return answer.text();
}

// Live by events; where there is no room for one more listener, by asking.
let events, again;
function listen() {
	clearTimeout(again);
	events?.close();
	if (document.hidden) return;
	events = new EventSource("guard/events" + query());
	events.onmessage = (e) => show(e.data);
	events.onerror = () => {
		live.textContent = "No connection since " + new Date().toISOString().slice(11, 19) + " UTC; trying again";
		events.close();
		clearTimeout(again);
		again = setTimeout(async () => {
			await ask("now" + query()).then(show, () => {});
			listen();
		}, 3000);
	};
}
document.addEventListener("visibilitychange", listen);
listen();

// Stop.
document.addEventListener("submit", async (e) => {
	const button = e.submitter;
	if (e.target.getAttribute("action") !== "guard/stop") {
		e.preventDefault();
		if (e.target.closest("#explain")) explain();
		return;
	}
	e.preventDefault();
	button.disabled = true;
	button.textContent = "Stopping";
	const answer = await fetch("guard/stop", { method: "POST", body: new URLSearchParams({ id: button.value }), redirect: "manual" });
	const text = answer.type === "opaqueredirect" ? "Stopped request " + button.value : await answer.text();
	show(await ask("now" + query()), true);
	const told = document.createElement("p");
	told.className = "note";
	told.id = "told";
	told.setAttribute("role", "status");
	told.textContent = text;
	const running = now.querySelector("#running");
	running.querySelector(".bar-top").after(told);
	running.focus();
});

// Find. Links to somebody's requests are the same.
let typed;
document.addEventListener("input", (e) => {
	clearTimeout(typed);
	if (e.target.name === "find") typed = setTimeout(() => look(e.target.value), 150);
	else if (e.target.closest("#explain")) typed = setTimeout(explain, 250);
});
document.addEventListener("click", (e) => {
	const to = e.target.closest('a[href^="?"]');
	if (!to || e.ctrlKey || e.metaKey || e.shiftKey) return;
	e.preventDefault();
	const text = new URLSearchParams(to.getAttribute("href")).get("find") || "";
	now.querySelector("[name=find]").value = text;
	look(text);
});
async function look(text) {
	find = text;
	history.replaceState(null, "", location.pathname + query());
	show(await ask("now" + query()), true);
	listen();
}

// Explain.
const box = document.getElementById("explain");
let asked = 0;
async function explain() {
	const mine = ++asked;
	const html = await ask("explain?" + new URLSearchParams(new FormData(box.querySelector("form")))).catch((err) => {
		const p = document.createElement("p");
		p.textContent = err.message;
		return p.outerHTML;
	});
	if (mine === asked) document.getElementById("verdict").replaceChildren(...parse(html).childNodes);
}
