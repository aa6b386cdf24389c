// alert makes a rule whose runbook is the section of docs/alerts.md with its name.
function(config, name, severity, wait, expr, summary, description) {
  alert: name,
  expr: expr,
  'for': wait,
  labels: { severity: severity },
  annotations: {
    summary: summary,
    description: description,
    runbook_url: config.runbook + std.asciiLower(name),
  },
}
