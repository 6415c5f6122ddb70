// What a dashboard file may hold, from Grafana's published types. In JSON a member of an enum is its value, and of options
// that a panel does not state Grafana takes its own defaults.
import type * as grafana from '@grafana/schema/dist/esm/raw/dashboard/x/Dashboard_types.gen';
import type * as bargauge from '@grafana/schema/dist/esm/raw/composable/bargauge/panelcfg/x/BarGaugePanelCfg_types.gen';
import type * as stat from '@grafana/schema/dist/esm/raw/composable/stat/panelcfg/x/StatPanelCfg_types.gen';
import type * as timeline from '@grafana/schema/dist/esm/raw/composable/statetimeline/panelcfg/x/StateTimelinePanelCfg_types.gen';
import type * as table from '@grafana/schema/dist/esm/raw/composable/table/panelcfg/x/TablePanelCfg_types.gen';
import type * as timeseries from '@grafana/schema/dist/esm/raw/composable/timeseries/panelcfg/x/TimeSeriesPanelCfg_types.gen';

type Json<T> = T extends string
  ? `${T}`
  : T extends number
    ? `${T}` extends `${infer N extends number}`
      ? N
      : T
    : T extends readonly (infer Item)[]
      ? Json<Item>[]
      : T extends object
        ? { [Key in keyof T]: Json<T[Key]> }
        : T;

type InPart<T> = T extends readonly (infer Item)[]
  ? Item[]
  : T extends object
    ? { [Key in keyof T]?: InPart<T[Key]> }
    : T;

/** What Grafana before 12.2 reads of a table, and later ones take over into the options of their own. */
type OldFooter = { footer?: { show?: boolean; enablePagination?: boolean } };

type None = Record<string, never>;

/** The options of each type of panel that is used, and what it adds to a field. */
interface Panels {
  bargauge: { options: bargauge.Options; custom: None };
  stat: { options: stat.Options; custom: None };
  'state-timeline': { options: timeline.Options; custom: timeline.FieldConfig };
  table: { options: table.Options & OldFooter; custom: table.FieldConfig };
  timeseries: { options: timeseries.Options; custom: timeseries.FieldConfig };
}

type Matcher = Json<grafana.MatcherConfig>;
/** A bound that is null is none, as in the types of @grafana/data. */
type Field = Json<Omit<grafana.FieldConfig, 'custom' | 'min' | 'max'>> & { min?: number | null; max?: number | null };
export type Custom<Type extends keyof Panels> = InPart<Json<Panels[Type]['custom']>>;
type Overrides = { matcher: Matcher; properties: { id: string; value?: unknown }[] }[];

/** A link says what it is; how it is shown may be left to Grafana. */
type Link = InPart<Json<grafana.DashboardLink>> & { title: string };

export type Panel<Type extends keyof Panels> = Json<Omit<grafana.Panel, 'type' | 'links' | 'options' | 'fieldConfig'>> & {
  type: Type;
  links?: Link[];
  options: InPart<Json<Panels[Type]['options']>>;
  fieldConfig: { defaults: Field & { custom?: Custom<Type> }; overrides: Overrides };
};

/** The value of one property of an override: of a field, or of what the type of panel adds to it. */
export type Property<Name extends keyof Field> = NonNullable<Field[Name]>;
export type CustomProperty<Type extends keyof Panels, Name extends keyof Custom<Type>> = NonNullable<Custom<Type>[Name]>;

export type Row = Json<grafana.RowPanel>;

/** Prometheus' annotations have their query beside the fields of every annotation. */
type Annotation = Json<grafana.AnnotationQuery> & {
  expr: string;
  titleFormat?: string;
  textFormat?: string;
  tagKeys?: string;
  useValueForTime?: boolean;
};

/** Without a value of its own for "All" Grafana itself writes null, as for the number on grafana.com. */
type Variable = Json<Omit<grafana.VariableModel, 'allValue'>> & { allValue?: string | null };

export type Dashboard = Json<
  Omit<grafana.Dashboard, 'panels' | 'annotations' | 'gnetId' | 'links' | 'templating'>
> & {
  annotations: { list: Annotation[] };
  gnetId?: number | null;
  links: Link[];
  templating: { list: Variable[] };
};
