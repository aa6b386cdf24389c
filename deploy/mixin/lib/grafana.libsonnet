// What of Grafana's dashboard model the dashboards here need, and no more: see
// docs/decisions/0003-dashboards-without-grafonnet.md.
local gridWidth = 24;

{
  // dashboard lays rows out: panels from left to right, in lines where they are too
  // many, and rows below each other.
  dashboard(title, uid, description, rows, variables=[], tags=['promguard'])::
    local header(row, y) = { type: 'row', title: row.title, collapsed: false, panels: [], gridPos: { x: 0, y: y, w: gridWidth, h: 1 } };
    local beside(panels, y, height) =
      local left(i) = std.floor(i * gridWidth / std.length(panels));
      std.mapWithIndex(function(i, p) p { gridPos: { x: left(i), y: y, w: left(i + 1) - left(i), h: height } }, panels);
    // As many lines as it takes for every panel to be as wide as it has to be.
    local lines(panels) =
      local all = std.length(panels);
      local count = std.ceil(all * std.foldl(std.max, [p.least for p in panels], 0) / gridWidth);
      [panels[std.floor(i * all / count):std.floor((i + 1) * all / count)] for i in std.range(0, count - 1)];
    local placeLines(lines, y) =
      if std.length(lines) == 0 then [] else
        local height = std.foldl(function(h, p) std.max(h, p.gridPos.h), lines[0], 0);
        beside(lines[0], y, height) + placeLines(lines[1:], y + height);
    local place(rows, y) =
      if std.length(rows) == 0 then [] else
        local panels = placeLines(lines(rows[0].panels), y + 1);
        local last = panels[std.length(panels) - 1].gridPos;
        [header(rows[0], y)] + panels + place(rows[1:], last.y + last.h);
    {
      title: title,
      uid: uid,
      description: description,
      tags: tags,
      schemaVersion: 41,
      version: 1,
      editable: true,
      graphTooltip: 1,
      refresh: '1m',
      timezone: 'browser',
      time: { from: 'now-3h', to: 'now' },
      links: [{
        type: 'dashboards',
        title: 'promguard',
        icon: 'dashboard',
        tooltip: 'Other dashboards of promguard',
        tags: ['promguard'],
        asDropdown: true,
        includeVars: true,
        keepTime: true,
      }],
      annotations: { list: [] },
      templating: { list: [$.datasource] + variables },
      panels: std.mapWithIndex(function(i, p) p { id: i + 1 }, place(rows, 0)),
    },

  row(title, panels):: { title: title, panels: panels },

  // datasource is the variable that every panel reads from.
  datasource:: {
    name: 'datasource',
    label: 'Data source',
    type: 'datasource',
    query: 'prometheus',
    current: { text: 'prometheus', value: 'prometheus' },
    regex: '',
    hide: 0,
  },

  local source = { type: 'prometheus', uid: '${datasource}' },

  // variable offers the values that a label has on the series of a selector. One
  // name of a metric is in the selector, so that promguard lets it through.
  variable(name, label, selector, multi=true):: {
    name: name,
    label: std.asciiUpper(name[0]) + name[1:],
    type: 'query',
    datasource: source,
    // qryType 1: values of a label.
    query: { qryType: 1, query: 'label_values(%s, %s)' % [selector, label], refId: 'variable' },
    definition: 'label_values(%s, %s)' % [selector, label],
    // 2: when the time range changes.
    refresh: 2,
    sort: 1,
    multi: multi,
    includeAll: true,
    allValue: '.*',
    current: { text: 'All', value: '$__all' },
    hide: 0,
  },

  // choice is a variable with one value, for panels that must not read all of them:
  // Grafana begins with the first.
  choice(name, label, selector):: $.variable(name, label, selector, multi=false) + { includeAll: false, allValue: null, current:: null },

  // query is an expression and how its series are called.
  query(expr, legend=''):: { expr: expr, legend: legend },

  // measured is what an expression gives, and 0 where it gives nothing though there
  // are series of the selector: without them there is no answer, not a green 0.
  measured(expr, selector):: '%s or 0 * count(%s)' % [expr, selector],

  local targets(queries, instant, format) = std.mapWithIndex(function(i, q) {
    refId: std.char(std.codepoint('A') + i),
    datasource: source,
    expr: q.expr,
    legendFormat: if q.legend == '' then '__auto' else q.legend,
    range: !instant,
    instant: instant,
    format: format,
    editorMode: 'code',
  }, queries),

  // Numbers of things are whole. Other units have the digits that the values need.
  local decimals(unit) = if unit == 'locale' then 0 else null,

  local panel(type, title, description, unit, height, least, queries, instant=false, format='time_series') = {
    type: type,
    title: title,
    description: description,
    datasource: source,
    gridPos: { x: 0, y: 0, w: gridWidth, h: height },
    // The least width at which it can be read, of the 24 of a dashboard.
    least:: least,
    fieldConfig: { defaults: { unit: unit, [if decimals(unit) != null then 'decimals']: decimals(unit) }, overrides: [] },
    targets: targets(queries, instant, format),
  },

  // runbook leads from a panel to what to do: the section of docs/alerts.md.
  runbook(c, alert):: { description+: '\n\n[Runbook](%s)' % (c.runbook + std.asciiLower(alert)) },

  // timeseries draws lines; stacked draws areas on top of each other.
  timeseries(title, description, unit, queries, stacked=false, max=null)::
    local labels = std.foldl(function(most, q) std.max(most, std.length(std.findSubstr('{{', q.legend))), queries, 0);
    panel('timeseries', title, description, unit, 10, if labels > 2 then 12 else 8, queries) + {
      fieldConfig+: { defaults+: {
        min: 0,
        [if max != null then 'max']: max,
        custom: {
          fillOpacity: if stacked then 30 else 0,
          lineWidth: 1,
          // Only where a line would not be seen: a point without neighbours.
          showPoints: 'auto',
          spanNulls: false,
          stacking: { mode: if stacked then 'normal' else 'none', group: 'A' },
        },
      } },
      options: {
        // A legend shows a few of its lines: those of the largest series. The last value
        // is that at the end of the graph, and none of a series that has ended before.
        legend: { displayMode: 'table', placement: 'bottom', showLegend: true, calcs: ['last', 'max'], sortBy: 'Max', sortDesc: true },
        tooltip: { mode: 'multi', sort: 'desc' },
      },
    },

  // stat shows what is now, from instant queries: the end of a range that ended an
  // hour ago would look like the present. thresholds are [[from, color], ...], the
  // first from null.
  stat(title, description, unit, queries, thresholds=[[null, 'text']], mappings=[]):: panel('stat', title, description, unit, 4, 4, queries, instant=true) + {
    fieldConfig+: { defaults+: {
      noValue: 'not measured',
      mappings: mappings,
      thresholds: { mode: 'absolute', steps: [{ value: t[0], color: t[1] } for t in thresholds] },
    } },
    options: {
      colorMode: 'value',
      graphMode: 'none',
      justifyMode: 'auto',
      orientation: 'auto',
      textMode: 'auto',
      reduceOptions: { calcs: ['lastNotNull'], fields: '', values: false },
    },
  },

  // table shows the series of one instant query. Its columns are [name, heading] of
  // labels, after that of the values, which is called value: null where the values say
  // nothing, and the labels are sorted instead. Only values have the unit: Grafana would
  // give it to labels that are numbers, too.
  table(title, description, unit, value, columns, query)::
    local all = (if value == null then [] else [['Value', value]]) + columns;
    panel('table', title, description, unit, 10, if std.length(all) > 3 then 12 else 8, [query], instant=true, format='table') + {
      fieldConfig: { defaults: {}, overrides: if value == null then [] else [{
        matcher: { id: 'byName', options: value },
        properties: [{ id: 'unit', value: unit }, { id: 'custom.width', value: 130 }] +
                    (if decimals(unit) == null then [] else [{ id: 'decimals', value: decimals(unit) }]),
      }] },
      options: { showHeader: true, sortBy: [{ displayName: all[0][1], desc: value != null }] },
      transformations: [{ id: 'organize', options: {
        excludeByName: { Time: true, __name__: true, [if value == null then 'Value']: true },
        indexByName: { [all[i][0]]: i for i in std.range(0, std.length(all) - 1) },
        renameByName: { [c[0]]: c[1] for c in all },
      } }],
    },
}
