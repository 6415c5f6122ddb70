// A panel's field options, applied by Grafana's own code; only the registry of what may be set is made here.
import {
  FieldColorModeId,
  FieldConfigOptionsRegistry,
  FieldType,
  applyFieldOverrides,
  cacheFieldDisplayNames,
  dataLinksOverrideProcessor,
  displayNameOverrideProcessor,
  identityOverrideProcessor,
  numberOverrideProcessor,
  standardTransformers,
  standardTransformersRegistry,
  stringOverrideProcessor,
  thresholdsOverrideProcessor,
  transformDataFrame,
  unitOverrideProcessor,
  valueMappingsOverrideProcessor,
} from '@grafana/data';
import { lastValueFrom } from 'rxjs';

const PROCESSORS = {
  unit: unitOverrideProcessor,
  min: numberOverrideProcessor,
  max: numberOverrideProcessor,
  decimals: numberOverrideProcessor,
  displayName: displayNameOverrideProcessor,
  color: identityOverrideProcessor,
  noValue: stringOverrideProcessor,
  links: dataLinksOverrideProcessor,
  mappings: valueMappingsOverrideProcessor,
  thresholds: thresholdsOverrideProcessor,
};
const THRESHOLDS = { mode: 'absolute', steps: [{ value: -Infinity, color: 'green' }, { value: 80, color: 'red' }] };

// What the time series panel, which is not in the packages, adds to what its options leave open.
const TIME_SERIES = {
  drawStyle: 'line',
  lineInterpolation: 'linear',
  lineWidth: 1,
  fillOpacity: 0,
  gradientMode: 'none',
  barAlignment: 0,
  lineStyle: { fill: 'solid' },
  showPoints: 'auto',
  pointSize: 5,
  spanNulls: false,
  stacking: { mode: 'none', group: 'A' },
  axisPlacement: 'auto',
  axisColorMode: 'text',
  axisLabel: '',
  axisGridShow: true,
  axisBorderShow: false,
  axisCenteredZero: false,
  scaleDistribution: { type: 'linear' },
  hideFrom: { legend: false, tooltip: false, viz: false },
  thresholdsStyle: { mode: 'off' },
};

standardTransformersRegistry.setInit(() =>
  [...new Set(Object.values(standardTransformers))].map((transformation) => ({
    id: transformation.id,
    name: transformation.name,
    transformation: async () => transformation,
  }))
);

/** The panel's frames after its transformations and with its units, colours, thresholds, mappings and overrides. */
export async function finished(frames, panel, { theme, timeZone, replaceVariables }) {
  const context = { interpolate: replaceVariables };
  const transformed = await lastValueFrom(transformDataFrame(panel.transformations ?? [], frames, context));
  const fieldConfig = complete(panel);
  const data = applyFieldOverrides({
    data: transformed,
    fieldConfig,
    fieldConfigRegistry: registry(fieldConfig),
    replaceVariables,
    theme,
    timeZone,
  });
  cacheFieldDisplayNames(data);
  return { data, fieldConfig };
}

function complete({ type, fieldConfig }) {
  const { defaults, overrides } = structuredClone(fieldConfig);
  const mode = type === 'timeseries' ? FieldColorModeId.PaletteClassic : FieldColorModeId.Thresholds;
  const all = { thresholds: THRESHOLDS, color: { mode }, ...defaults };
  if (type === 'timeseries') {
    all.custom = { ...TIME_SERIES, ...defaults.custom };
  }
  const properties = overrides.flatMap(({ properties }) => properties);
  for (const { steps } of [all.thresholds, ...properties.map(({ value }) => value)].filter((value) => value?.steps)) {
    steps[0].value ??= -Infinity; // JSON has no infinity; Grafana restores it on loading too
  }
  return { defaults: all, overrides };
}

function registry({ defaults, overrides }) {
  const set = overrides.flatMap(({ properties }) => properties.map(({ id }) => id));
  const custom = [...Object.keys(defaults.custom ?? {}), ...set.filter(isCustom).map((id) => id.slice(7))];
  const items = new FieldConfigOptionsRegistry();
  for (const [id, process] of Object.entries(PROCESSORS)) {
    items.register({ id, path: id, name: id, process, override: process, shouldApply: () => true });
  }
  for (const path of new Set(custom)) {
    items.register({
      id: `custom.${path}`,
      path,
      name: path,
      isCustom: true,
      process: identityOverrideProcessor,
      override: identityOverrideProcessor,
      shouldApply: (field) => field.type !== FieldType.time,
    });
  }
  const unknown = set.filter((id) => items.getIfExists(id) === undefined);
  if (unknown.length > 0) {
    throw new Error(`overrides that are not known here: ${unknown}`);
  }
  return items;
}

const isCustom = (id) => id.startsWith('custom.');
