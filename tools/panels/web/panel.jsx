// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// A panel as Grafana draws it: the answer of its queries is transformed, fields get
// their configuration, and the component of the panel's type draws them.
import React, { useEffect, useState } from 'react';
import {
  applyFieldOverrides, dataFrameFromJSON, dateTime, EventBusSrv, getDisplayValueAlignmentFactors, getFieldDisplayValues,
  standardTransformers, standardTransformersRegistry, transformDataFrame,
} from '@grafana/data';
import { BigValue, PanelChrome, PanelContextProvider, TimeSeries, useTheme2, VizRepeater } from '@grafana/ui';
import { TableNG } from '@grafana/ui/unstable';
import { transformV2 } from 'result_transformer';
import { lastValueFrom } from 'rxjs';
import { fieldOptions } from './fields.js';

standardTransformersRegistry.setInit(() =>
  [standardTransformers.organizeFieldsTransformer].map((t) => ({ id: t.id, name: t.name, transformation: async () => t })));

const timeZone = 'utc';
const context = { eventsScope: 'global', eventBus: new EventBusSrv() };

// dataOf gives the frames that a panel draws.
async function dataOf(panel, answers, theme) {
  const data = answers.flatMap((answer) => (answer.frames ?? []).map(dataFrameFromJSON));
  const frames = transformV2({ data }, { targets: panel.targets }, {}).data;
  const transformed = await lastValueFrom(transformDataFrame(panel.transformations ?? [], frames));
  const { registry, fieldConfig } = fieldOptions(panel);
  return applyFieldOverrides({
    data: transformed, fieldConfig, fieldConfigRegistry: registry, theme, timeZone, replaceVariables: (text) => text,
  });
}

function Series({ panel, frames, range, width, height }) {
  return <TimeSeries frames={frames} timeRange={range} timeZone={timeZone} width={width} height={height} legend={panel.options.legend} />;
}

function Stat({ panel, frames, width, height }) {
  const theme = useTheme2();
  const { graphMode, colorMode, justifyMode, textMode, orientation, reduceOptions } = panel.options;
  const getValues = () => getFieldDisplayValues({
    fieldConfig: panel.fieldConfig, reduceOptions, data: frames, theme, timeZone, sparkline: graphMode !== 'none', replaceVariables: (text) => text,
  });
  const value = ({ value: { display, sparkline }, alignmentFactors, width, height, count }) => (
    <BigValue value={display} count={count} sparkline={sparkline} colorMode={colorMode} graphMode={graphMode} justifyMode={justifyMode}
      textMode={count === 1 && textMode === 'auto' ? 'value' : textMode} alignmentFactors={alignmentFactors} width={width} height={height} theme={theme} />
  );
  return (
    <VizRepeater getValues={getValues} getAlignmentFactors={getDisplayValueAlignmentFactors} renderValue={value}
      width={width} height={height} source={frames} orientation={orientation} renderCounter={0} autoGrid />
  );
}

function Table({ panel, frames, range, width, height }) {
  return (
    <TableNG data={frames[0]} width={width} height={height} noHeader={!panel.options.showHeader} sortBy={panel.options.sortBy}
      cellHeight="sm" timeRange={range} enableVirtualization={false} structureRev={1} columnMinWidth={60} />
  );
}

const components = { timeseries: Series, stat: Stat, table: Table };

// status is what Grafana shows beside the title: errors, warnings of the server,
// and nothing if all is well.
function statusOf(answers) {
  return answers.flatMap(({ error, warnings }) => [
    ...(error ? [{ severity: 'error', text: error }] : []),
    ...(warnings ?? []).map((text) => ({ severity: 'warning', text })),
  ]);
}

// Panel draws a panel; done is called when it has.
export function Panel({ panel, answers, range, width, height, done }) {
  const theme = useTheme2();
  const [frames, setFrames] = useState(null);
  const [failure, setFailure] = useState(null);
  const timeRange = { from: dateTime(range.from), to: dateTime(range.to), raw: range };
  useEffect(() => {
    dataOf(panel, answers, theme).then(setFrames, setFailure);
  }, [panel, answers, theme]);
  useEffect(() => {
    if (frames || failure) {
      done(failure && `${panel.title}: ${failure.stack}`);
    }
  }, [frames, failure, done]);
  const status = statusOf(answers);
  const Component = components[panel.type];
  // A stat shows the text that it has for this.
  const empty = frames && panel.type !== 'stat' && frames.every((frame) => !frame.length);
  return (
    <PanelContextProvider value={context}>
      <PanelChrome title={panel.title} description={panel.description || undefined} width={width} height={height} statusItems={status}>
        {(innerWidth, innerHeight) => frames && (empty
          ? <div className="empty">No data</div>
          : <Component panel={panel} frames={frames} range={timeRange} width={innerWidth} height={innerHeight} />)}
      </PanelChrome>
    </PanelContextProvider>
  );
}
