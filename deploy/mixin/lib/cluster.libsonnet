// Keeps what a dashboard reads to one cluster, the variable of that name: behind Thanos
// there are several, and their series differ by nothing else.
local g = import 'grafana.libsonnet';
local names = import 'records.libsonnet';

function(c)
  local matcher = '%s="$cluster"' % c.clusterLabel;
  // Records are named and not selected from: they get a selector, or its first part.
  local record(expr, name) =
    local selected = name + '{', marker = '<>';
    std.strReplace(std.strReplace(std.strReplace(expr, selected, marker), name, '%s{%s}' % [name, matcher]), marker, '%s%s, ' % [selected, matcher]);
  local records(expr) = std.foldl(record, std.objectValues(names(c)), expr);
  local variable(v) = if v.type == 'query' then v { query+: { query: records(super.query) }, definition: records(super.definition) } else v;
  {
    // config has the selectors of one cluster.
    config: c {
      [selector]: '%s, %s' % [c[selector], matcher]
      for selector in c.selectors
    } + { inCluster: matcher },

    dashboard(d):: d {
      templating: { list: [
        g.datasource,
        g.choice('cluster', c.clusterLabel, 'prometheus_build_info{%s}' % c.prometheus),
      ] + [variable(v) for v in d.templating.list if v.name != g.datasource.name] },
      panels: [
        p { [if std.objectHas(p, 'targets') then 'targets']: [t { expr: records(t.expr) } for t in p.targets] }
        for p in d.panels
      ],
    },
  }
