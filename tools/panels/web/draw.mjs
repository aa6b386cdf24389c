// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// Draws pages in Chromium and photographs them. The argument is a file of orders:
// {modules, chromium, out, pages: [{file, name, width, panels: {name: id}}]}.
import { readFile } from 'node:fs/promises';
import path from 'node:path';
import { build } from 'esbuild';
import { chromium } from 'playwright-core';

const orders = JSON.parse(await readFile(process.argv[2], 'utf8'));
// Nothing listens there: every request is answered from files, and all others fail.
const origin = 'http://panels.invalid/';

// Editors are most of the packages, and panels have none.
const withoutEditors = {
  name: 'without-editors',
  setup(build) {
    build.onResolve({ filter: /^monaco-editor/ }, () => ({ path: 'monaco-editor', namespace: 'nothing' }));
    build.onLoad({ filter: /.*/, namespace: 'nothing' }, () => ({ contents: 'module.exports = {};', loader: 'js' }));
  },
};

const bundle = await build({
  entryPoints: [path.join(orders.modules, '..', 'dashboard.jsx')], outdir: '/', bundle: true, write: false, minify: true, format: 'iife',
  jsx: 'transform', logLevel: 'error', plugins: [withoutEditors],
  // Of the data source's package this file alone: the rest is its editor.
  alias: { result_transformer: path.join(orders.modules, '@grafana/prometheus/dist/esm/result_transformer.mjs') },
  loader: { '.woff': 'empty', '.woff2': 'dataurl', '.svg': 'dataurl' }, define: { 'process.env.NODE_ENV': '"production"', global: 'window' },
});
const built = Object.fromEntries(bundle.outputFiles.map((f) => [path.basename(f.path), f.text]));
const html = '<!doctype html><meta charset="utf-8"><link rel="stylesheet" href="dashboard.css"><div id="root"></div><script src="dashboard.js"></script>';
const types = { '.js': 'text/javascript', '.css': 'text/css', '.svg': 'image/svg+xml' };
// Where Grafana's styles look for fonts that are not in its packages.
const fonts = { 'Inter-Regular.woff2': 'inter-latin-400-normal.woff2', 'Inter-Medium.woff2': 'inter-latin-500-normal.woff2' };

async function answer(route) {
  const { pathname } = new URL(route.request().url());
  const name = path.basename(pathname);
  if (pathname === '/') {
    return route.fulfill({ contentType: 'text/html', body: html });
  }
  if (name in built) {
    return route.fulfill({ contentType: types[path.extname(name)], body: built[name] });
  }
  const icon = pathname.split('/img/icons/')[1];
  if (icon) {
    return route.fulfill({ contentType: types['.svg'], path: path.join(orders.modules, '@grafana/ui/dist/public/img/icons', icon) });
  }
  if (name in fonts) {
    return route.fulfill({ contentType: 'font/woff2', path: path.join(orders.modules, '@fontsource/inter/files', fonts[name]) });
  }
  return route.fulfill({ status: name === 'favicon.ico' ? 204 : 404, body: '' });
}

const browser = await chromium.launch({
  executablePath: orders.chromium,
  args: ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking', '--disable-component-update',
    '--disable-sync', '--font-render-hinting=none', '--force-color-profile=srgb'],
});
const failures = [];
for (const order of orders.pages) {
  const page = await browser.newPage({ viewport: { width: order.width, height: 900 }, timezoneId: 'UTC', locale: 'en-US', reducedMotion: 'reduce' });
  page.on('pageerror', (error) => failures.push(`${order.name}: ${error.stack}`));
  page.on('console', (message) => {
    if (message.type() === 'error') {
      failures.push(`${order.name}: ${message.text()} ${message.location().url}`);
    }
  });
  await page.route('**/*', answer);
  await page.goto(origin);
  const data = JSON.parse(await readFile(order.file, 'utf8'));
  // A component that throws ends the drawing without a word but this one.
  const broken = page.waitForEvent('pageerror', { timeout: 0 }).then((error) => [error.stack], () => []);
  const drawn = page.evaluate(([data, width]) => window.draw(data, width), [data, order.width]);
  const wrong = await Promise.race([drawn, broken]);
  failures.push(...wrong.map((text) => `${order.name}: ${text}`));
  if (wrong.length > 0) {
    break;
  }
  const main = page.locator('main');
  const { height } = await main.boundingBox();
  await page.setViewportSize({ width: order.width, height: Math.ceil(height) });
  // Columns and legends settle in the frames after the first.
  await page.waitForLoadState('networkidle');
  await page.waitForTimeout(500);
  // What is wrong with a panel shows when the focus is on its sign, or the pointer.
  const signs = page.locator('[data-testid^="data-testid Panel status"]');
  if (await signs.count() > 0) {
    await signs.last().focus();
    await signs.first().hover();
    await page.waitForTimeout(700);
  }
  await page.screenshot({ path: path.join(orders.out, `${order.name}.png`) });
  for (const [name, id] of Object.entries(order.panels ?? {})) {
    await page.locator(`#panel-${id}`).screenshot({ path: path.join(orders.out, `${name}.png`) });
  }
  await page.close();
}
await browser.close();
if (failures.length > 0) {
  console.error([...new Set(failures)].join('\n'));
  process.exit(1);
}
