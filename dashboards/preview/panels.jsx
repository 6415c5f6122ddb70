// One component per panel type, each made of what @grafana/ui publishes. A type that it does not draw says so.
import { dateTimeFormat, getDisplayValueAlignmentFactors, getFieldDisplayName, getFieldDisplayValues } from '@grafana/data';
import { BarGauge, BigValue, TimeSeries, TooltipPlugin, VizLegend, VizRepeater, useTheme2 } from '@grafana/ui';
import { TableNG } from '@grafana/ui/unstable';

const asIs = (text) => text;

export const PANELS = {
  timeseries: TimeSeriesPanel,
  stat: StatPanel,
  bargauge: BarGaugePanel,
  table: TablePanel,
};

function TimeSeriesPanel({ panel, data, width, height, timeRange, timeZone }) {
  const { legend, tooltip } = panel.options;
  return (
    <TimeSeries frames={data} width={width} height={height} timeRange={timeRange} timeZone={timeZone} legend={legend}>
      {(builder, alignedFrame) => (
        <TooltipPlugin config={builder} data={alignedFrame} mode={tooltip.mode} sortOrder={tooltip.sort}
          timeZone={timeZone} />
      )}
    </TimeSeries>
  );
}

function StatPanel({ panel, data, fieldConfig, width, height, timeZone }) {
  const theme = useTheme2();
  const { reduceOptions, colorMode, graphMode, textMode, justifyMode } = panel.options;
  const values = fieldDisplays(data, fieldConfig, reduceOptions, theme, timeZone);
  return (
    <Repeated values={values} width={width} height={height} orientation="auto" autoGrid>
      {(value, size, count) => (
        <BigValue {...size} theme={theme} value={value.display} count={count} colorMode={colorMode}
          graphMode={graphMode} textMode={textMode} justifyMode={justifyMode} />
      )}
    </Repeated>
  );
}

function BarGaugePanel({ panel, data, fieldConfig, width, height, timeZone }) {
  const theme = useTheme2();
  const { reduceOptions, orientation, displayMode, showUnfilled, valueMode = 'color', namePlacement = 'auto' } = panel.options;
  const { minVizWidth = 8, minVizHeight = 16, maxVizHeight = 300, text } = panel.options;
  const values = fieldDisplays(data, fieldConfig, reduceOptions, theme, timeZone);
  return (
    <Repeated values={values} width={width} height={height} orientation={orientation} itemSpacing={10}
      minVizWidth={minVizWidth} minVizHeight={minVizHeight} maxVizHeight={maxVizHeight}>
      {(value, size, _, { orientation: laidOut, alignmentFactors }) => (
        <BarGauge {...size} theme={theme} field={value.field} display={value.view?.getFieldDisplayProcessor(value.colIndex)}
          value={value.display} orientation={laidOut} displayMode={displayMode} showUnfilled={showUnfilled}
          alignmentFactors={alignmentFactors} valueDisplayMode={valueMode} namePlacement={namePlacement}
          itemSpacing={10} lcdCellWidth={12} text={text} />
      )}
    </Repeated>
  );
}

function TablePanel({ panel, data, fieldConfig, width, height, timeRange }) {
  const { cellHeight, showHeader, sortBy, footer } = panel.options;
  return (
    <TableNG data={data[0]} width={width} height={height} timeRange={timeRange} noHeader={!showHeader} sortBy={sortBy}
      cellHeight={cellHeight} enablePagination={footer?.enablePagination} fieldConfig={fieldConfig} resizable
      structureRev={1} />
  );
}

/** In place of a panel of a type that no published package draws: its series, and what each says last. */
export function Undrawn({ panel, data, timeRange, timeZone }) {
  const items = data.flatMap((frame) => frame.fields.slice(1).map((field) => {
    const { text, color } = field.display(field.values.at(-1));
    const [{ values: times, config: { interval } }] = frame.fields;
    const ended = times.at(-1) + interval < timeRange.to.valueOf();
    const until = ended ? `, until ${dateTimeFormat(times.at(-1), { timeZone, format: 'HH:mm' })}` : '';
    return { label: `${getFieldDisplayName(field, frame, data)}: ${text}${until}`, color, yAxis: 1 };
  }));
  return (
    <>
      <p className="undrawn">
        Not drawn: Grafana publishes no package with its “{panel.type}” panel. What each series says last:
      </p>
      <VizLegend items={items} displayMode="list" placement="bottom" />
    </>
  );
}

function Repeated({ values, children, ...layout }) {
  return (
    <VizRepeater {...layout} source={values} getValues={() => values} renderCounter={1}
      getAlignmentFactors={getDisplayValueAlignmentFactors}
      renderValue={(props) => children(props.value, { width: props.width, height: props.height }, props.count, props)} />
  );
}

function fieldDisplays(data, fieldConfig, reduceOptions, theme, timeZone) {
  return getFieldDisplayValues({ data, fieldConfig, reduceOptions, theme, timeZone, replaceVariables: asIs });
}
