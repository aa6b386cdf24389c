// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// A dashboard: its title and variables, and panels where gridPos puts them.
import React, { useCallback, useRef } from 'react';
import { createRoot } from 'react-dom/client';
import { createTheme, ThemeContext } from '@grafana/data';
import { initPluginTranslations } from '@grafana/i18n';
import { GlobalStyles, Icon, PortalContainer, useTheme2 } from '@grafana/ui';
import { Panel } from './panel.jsx';
import './fonts.css';

// Grafana's grid, in pixels.
const columns = 24, cell = 30, gap = 8, margin = 16;

function Title({ dashboard, variables, range, width }) {
  const theme = useTheme2();
  const time = (ms) => new Date(ms).toISOString().slice(0, 16).replace('T', ' ');
  return (
    <header style={{ width }}>
      <h1>{dashboard.title}</h1>
      {dashboard.templating.list.filter((v) => v.type === 'query').map((v) => (
        <span className="variable" key={v.name} style={{ borderColor: theme.colors.border.medium, background: theme.components.input.background }}>
          <b>{v.label}</b> {v.current?.text ?? variables[v.name]}
        </span>
      ))}
      <span className="time"><Icon name="clock-nine" /> {time(range.from)} to {time(range.to)} UTC</span>
    </header>
  );
}

// filled is a dashboard with the variables in the titles of its panels replaced.
const filled = (dashboard, variables) => ({
  ...dashboard,
  panels: dashboard.panels.map((p) => ({ ...p, title: p.title.replace(/\$(\w+)/g, (ref, name) => variables[name] ?? ref) })),
});

function Dashboard({ page, width, done }) {
  const { answers, variables, range } = page;
  const dashboard = filled(page.dashboard, variables);
  const column = (width - 2 * margin - gap * (columns - 1)) / columns;
  const left = useRef(dashboard.panels.filter((p) => p.type !== 'row').length);
  const failures = useRef([]);
  const drawn = useCallback((failure) => {
    failures.current.push(...(failure ? [failure] : []));
    left.current -= 1;
    if (left.current === 0) {
      done(failures.current);
    }
  }, [done]);
  const bottom = Math.max(...dashboard.panels.map(({ gridPos: { y, h } }) => y + h));
  return (
    <main style={{ width, height: 48 + bottom * (cell + gap) + gap }}>
      <Title dashboard={dashboard} variables={variables} range={range} width={width - 2 * margin} />
      {dashboard.panels.map((panel) => {
        const { x, y, w, h } = panel.gridPos;
        const at = {
          left: margin + x * (column + gap), top: 48 + y * (cell + gap),
          width: w * column + (w - 1) * gap, height: h * cell + (h - 1) * gap,
        };
        return (
          <section key={panel.id} id={`panel-${panel.id}`} style={at}>
            {panel.type === 'row'
              ? <h2><Icon name="angle-down" /> {panel.title}</h2>
              : <Panel panel={panel} answers={answers[panel.id]} range={range} width={at.width} height={at.height} done={drawn} />}
          </section>
        );
      })}
    </main>
  );
}

// draw draws a page of that width; the promise is of what failed.
window.draw = async (page, width) => {
  await initPluginTranslations('panels');
  await document.fonts.load('16px Inter');
  const theme = createTheme({ colors: { mode: 'dark' } });
  document.body.style.background = theme.colors.background.canvas;
  return new Promise((done) => {
    createRoot(document.getElementById('root')).render(
      <ThemeContext.Provider value={theme}>
        <GlobalStyles />
        <Dashboard page={page} width={width} done={done} />
        <PortalContainer />
      </ThemeContext.Provider>,
    );
  });
};
