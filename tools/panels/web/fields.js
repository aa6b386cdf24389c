// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// The options of fields that panels know, and their defaults: what Grafana's own
// panels register when they are loaded, which the packages do not have.
import { FieldConfigOptionsRegistry } from '@grafana/data';

const standard = ['unit', 'min', 'max', 'decimals', 'displayName', 'noValue', 'color', 'thresholds', 'mappings'];

// timeseries are the defaults of Grafana's panel of that name.
const timeseries = {
  axisPlacement: 'auto', axisColorMode: 'text', axisBorderShow: false, axisGridShow: true, axisCenteredZero: false,
  scaleDistribution: { type: 'linear' },
  drawStyle: 'line', lineInterpolation: 'linear', lineWidth: 1, lineStyle: undefined,
  fillOpacity: 0, gradientMode: 'none', showPoints: 'auto', pointSize: 5, spanNulls: false, insertNulls: false,
  stacking: { mode: 'none', group: 'A' }, barAlignment: 0, barWidthFactor: 0.6,
  hideFrom: { tooltip: false, viz: false, legend: false }, thresholdsStyle: { mode: 'off' },
};

const table = { align: 'auto', cellOptions: { type: 'auto' }, inspect: false, filterable: false, width: undefined, hideFrom: { viz: false } };

const kinds = {
  timeseries: { color: { mode: 'palette-classic' }, custom: timeseries },
  stat: { color: { mode: 'thresholds' }, custom: {} },
  table: { color: { mode: 'thresholds' }, custom: table },
};

const option = (path, isCustom) => ({
  id: isCustom ? `custom.${path}` : path, path, isCustom, name: path,
  process: (value) => value, shouldApply: () => true,
});

// fieldOptions returns the registry of a type of panel, and a panel's configuration
// of fields with the defaults filled in.
export function fieldOptions(panel) {
  const kind = kinds[panel.type];
  if (!kind) {
    throw new Error(`panels of type ${panel.type} are not known`);
  }
  const { defaults, overrides } = panel.fieldConfig;
  const custom = { ...kind.custom, ...defaults.custom };
  for (const key of Object.keys(custom)) {
    if (!(key in kind.custom)) {
      throw new Error(`${panel.title}: option ${key} of fields is not known`);
    }
  }
  const registry = new FieldConfigOptionsRegistry(() => [
    ...standard.map((path) => option(path, false)), ...Object.keys(kind.custom).map((path) => option(path, true)),
  ]);
  return { registry, fieldConfig: { defaults: { color: kind.color, ...defaults, custom }, overrides } };
}
