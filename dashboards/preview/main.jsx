// Draws a dashboard's JSON, whole, from a Prometheus: `await drawDashboard({...})` answers with what each panel shows.
import { createTheme, dateTime } from '@grafana/data';
import { GlobalStyles, Icon, PanelChrome, ThemeContext } from '@grafana/ui';
import { flushSync } from 'react-dom';
import { createRoot } from 'react-dom/client';

import '@grafana/react-data-grid/lib/styles.css';
import './preview.css';

import { finished } from './fields.js';
import { PANELS, Undrawn } from './panels.jsx';
import { Prometheus, chosen, interpolate, resolveVariables } from './prometheus.js';

window.__grafana_public_path__ = '/';

const COLUMNS = 24;
const CELL_HEIGHT = 30;
const GAP = 8;
const TIME_ZONE = 'utc';

/**
 * Args: the dashboard; the address of a Prometheus; from and to as Unix seconds; its scrape interval in seconds;
 * width in CSS pixels; mode "dark" or "light"; values of variables that are not to be "All".
 * Returns one entry per panel: its title, type, how many series or rows it got, and whether it is drawn.
 */
window.drawDashboard = async ({ dashboard, url, from, to, scrapeInterval, width, mode, values = {} }) => {
  const theme = createTheme({ colors: { mode } });
  const source = new Prometheus({ url, from, to, scrapeInterval });
  const variables = await resolveVariables(dashboard.templating.list, source, values);
  const timeRange = { from: dateTime(1000 * from), to: dateTime(1000 * to), raw: dashboard.time };
  const panels = laidOut(dashboard.panels, variables);
  const prepared = [];
  for (const item of panels) {
    prepared.push(await prepare(item, source, theme, width));
  }
  flushSync(() => root.render(
    <ThemeContext.Provider value={theme}>
      <GlobalStyles />
      <Dashboard panels={prepared} width={width} timeRange={timeRange} theme={theme} />
    </ThemeContext.Provider>
  ));
  if (thrown !== undefined) {
    throw thrown;
  }
  document.body.style.background = theme.colors.background.canvas;
  return prepared.filter(({ panel }) => panel.type !== 'row').map(({ panel, title, data }) => ({
    title,
    type: panel.type,
    drawn: panel.type in PANELS,
    returned: panel.type === 'table' ? (data[0]?.length ?? 0) : data.length,
  }));
};

let thrown;
const root = createRoot(document.getElementById('dashboard'), { onUncaughtError: (error) => { thrown = error; } });

function Dashboard({ panels, width, timeRange, theme }) {
  const bottom = Math.max(...panels.map(({ box }) => box.y + box.h));
  return (
    <div className="grid" style={{ width, height: bottom * (CELL_HEIGHT + GAP) }}>
      {panels.map((item, index) => (
        <div key={index} className="cell" style={pixels(item.box, width)}>
          {item.panel.type === 'row'
            ? <h2 style={{ color: theme.colors.text.primary }}><Icon name="angle-down" /> {item.title}</h2>
            : <Panel {...item} size={pixels(item.box, width)} timeRange={timeRange} theme={theme} />}
        </div>
      ))}
    </div>
  );
}

function Panel({ panel, title, data, fieldConfig, size, timeRange, theme }) {
  const Drawn = PANELS[panel.type] ?? Undrawn;
  const empty = data.length === 0 && panel.type !== 'stat';
  return (
    <PanelChrome title={title} description={panel.description} width={size.width} height={size.height}>
      {(width, height) => empty
        ? <div className="empty" style={{ color: theme.colors.text.secondary }}>{fieldConfig.defaults.noValue ?? 'No data'}</div>
        : <Drawn panel={panel} data={data} fieldConfig={fieldConfig} width={width} height={height}
            timeRange={timeRange} timeZone={TIME_ZONE} />}
    </PanelChrome>
  );
}

async function prepare({ panel, box, variables }, source, theme, width) {
  const title = interpolate(panel.title, variables);
  if (panel.type === 'row') {
    return { panel, box, title };
  }
  const inner = pixels(box, width).width;
  const asked = panel.targets.map((target) => source.frames(target, panel.targets, variables, inner));
  const frames = (await Promise.all(asked)).flat();
  const replaceVariables = (text) => interpolate(text, variables);
  return { panel, box, title, ...(await finished(frames, panel, { theme, timeZone: TIME_ZONE, replaceVariables })) };
}

/** Panels and where they stand, after rows and panels have been repeated for each value of their variable. */
function laidOut(panels, variables) {
  const placed = [];
  let shift = 0;
  for (const section of sections(panels)) {
    const start = section[0].gridPos.y;
    const height = Math.max(...section.map(({ gridPos: { y, h } }) => y + h)) - start;
    const rowsVariable = section[0].type === 'row' ? section[0].repeat : undefined;
    const copies = rowsVariable ? variables[rowsVariable].values : [undefined];
    copies.forEach((value, index) => {
      const scoped = value === undefined ? variables : { ...variables, [rowsVariable]: chosen(value) };
      const added = repeated(section, scoped, shift + index * height, placed);
      shift += added;
    });
    shift += (copies.length - 1) * height;
  }
  return placed;
}

/** Puts a section's panels down; returns by how many cells the repeated ones made it taller. */
function repeated(section, variables, shift, placed) {
  const grown = []; // below which line by how much
  const taller = (y) => Math.max(0, ...grown.filter(({ below }) => below <= y).map(({ by }) => by));
  for (const panel of section) {
    const box = { ...panel.gridPos, y: panel.gridPos.y + shift + taller(panel.gridPos.y) };
    if (!panel.repeat || panel.type === 'row') {
      placed.push({ panel, box, variables });
      continue;
    }
    variables[panel.repeat].values.forEach((value, index) => {
      const at = panel.repeatDirection === 'v' ? { ...box, y: box.y + index * box.h } : across(box, index, panel, variables);
      placed.push({ panel, box: at, variables: { ...variables, [panel.repeat]: chosen(value) } });
    });
    const last = placed.at(-1).box;
    const before = taller(panel.gridPos.y);
    grown.push({ below: panel.gridPos.y + panel.gridPos.h, by: before + last.y + last.h - (box.y + box.h) });
  }
  return taller(Infinity);
}

function across(box, index, panel, variables) {
  const perRow = Math.min(variables[panel.repeat].values.length, panel.maxPerRow ?? 4);
  const w = COLUMNS / perRow;
  return { x: (index % perRow) * w, w, h: box.h, y: box.y + Math.floor(index / perRow) * box.h };
}

function sections(panels) {
  const found = [];
  for (const panel of panels) {
    if (panel.type === 'row' || found.length === 0) {
      found.push([]);
    }
    found.at(-1).push(panel);
  }
  return found;
}

function pixels({ x, y, w, h }, width) {
  const column = (width - GAP) / COLUMNS;
  return {
    left: GAP + x * column,
    top: GAP + y * (CELL_HEIGHT + GAP),
    width: w * column - GAP,
    height: h * (CELL_HEIGHT + GAP) - GAP,
  };
}
