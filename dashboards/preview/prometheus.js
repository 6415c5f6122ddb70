// What Grafana's server does for a panel: variables, steps, queries, and answers of Prometheus as data frames.
import { FieldType, createDataFrame } from '@grafana/data';

const VARIABLE = /\$(\w+)|\$\{(\w+)(?::(\w+))?\}/g;
const MAX_STEPS = 11000;

/** Text with its variables filled in: as a regular expression in queries, as the person sees them elsewhere. */
export function interpolate(text, variables, inQuery = false) {
  return text.replace(VARIABLE, (whole, plain, braced) => {
    const variable = variables[plain ?? braced];
    if (variable === undefined) {
      return whole;
    }
    return inQuery ? variable.query : variable.text;
  });
}

/** One value of a variable, chosen. */
export function chosen(value) {
  return { text: value, query: value.replace(/[\\^$.*+?()[\]{}|]/g, '\\\\$&'), values: [value] };
}

/** The dashboard's variables, each at "All" or at what is asked for, in the order in which they depend. */
export async function resolveVariables(list, source, asked) {
  const variables = {};
  for (const { name, type, query, allValue } of list) {
    if (type === 'datasource') {
      variables[name] = chosen('prometheus');
    } else if (asked[name] !== undefined) {
      variables[name] = chosen(asked[name]);
    } else {
      const [, selector, label] = /^label_values\((?:(.*),\s*)?(\w+)\)$/s.exec(query);
      const values = await source.labelValues(label, selector && interpolate(selector, variables, true));
      const all = allValue ?? `(${values.map((value) => chosen(value).query).join('|')})`;
      variables[name] = { text: 'All', query: all, values };
    }
  }
  return variables;
}

/** A Prometheus between two times, asked as often as its scrapes allow. Times and steps are in seconds. */
export class Prometheus {
  constructor({ url, from, to, scrapeInterval }) {
    Object.assign(this, { url, from, to, scrapeInterval });
  }

  async labelValues(label, selector) {
    const parameters = { start: this.from, end: this.to, ...(selector && { 'match[]': selector }) };
    return this.#get(`label/${label}/values`, parameters);
  }

  /** The frames of one target, for a panel so many pixels wide. */
  async frames(target, targets, variables, width) {
    const step = Math.max(this.scrapeInterval, Math.ceil((this.to - this.from) / Math.min(width, MAX_STEPS)));
    const rateInterval = Math.max(step + this.scrapeInterval, 4 * this.scrapeInterval);
    const query = interpolate(target.expr, {
      ...variables,
      __rate_interval: { query: `${rateInterval}s` },
      __interval: { query: `${step}s` },
      __range: { query: `${this.to - this.from}s` },
    }, true);
    const { result } = target.instant
      ? await this.#get('query', { query, time: this.to })
      : await this.#get('query_range', { query, start: this.from, end: this.to, step });
    const series = result.map(({ metric, value, values }) => ({ labels: metric, samples: values ?? [value] }));
    if (target.format === 'table') {
      const tables = targets.filter(({ format }) => format === 'table').length;
      return series.length ? [table(series, target.refId, tables > 1 ? `Value #${target.refId}` : 'Value')] : [];
    }
    return series.map(({ labels, samples }) => timeSeries(labels, samples, target, step));
  }

  async #get(path, parameters) {
    const answer = await fetch(`${this.url}/api/v1/${path}?${new URLSearchParams(parameters)}`);
    const document = await answer.json();
    if (document.status !== 'success') {
      throw new Error(`${document.error} in ${parameters.query ?? path}`);
    }
    return document.data;
  }
}

function timeSeries(labels, found, { refId, legendFormat }, step) {
  const samples = everyStep(found, step);
  const name = legendFormat?.replace(/\{\{\s*(.+?)\s*\}\}/g, (_, label) => labels[label] ?? '');
  return createDataFrame({
    refId,
    fields: [
      { name: 'Time', type: FieldType.time, values: samples.map(milliseconds), config: { interval: 1000 * step } },
      {
        name: 'Value',
        type: FieldType.number,
        labels,
        values: samples.map(number),
        config: name ? { displayNameFromDS: name } : {},
      },
    ],
  });
}

/** With null where a step has no sample: lines break there, as Grafana's own panel sees to before it draws. */
function everyStep(samples, step) {
  const known = new Map(samples);
  const [first, last] = [samples[0][0], samples.at(-1)[0]];
  return Array.from({ length: Math.round((last - first) / step) + 1 }, (_, index) => {
    const at = first + index * step;
    return [at, known.get(at) ?? null];
  });
}

function table(series, refId, valueName) {
  const labels = [...new Set(series.flatMap(({ labels }) => Object.keys(labels)))].sort();
  return createDataFrame({
    refId,
    fields: [
      { name: 'Time', type: FieldType.time, values: series.map(({ samples }) => milliseconds(samples[0])) },
      ...labels.map((label) => ({
        name: label,
        type: FieldType.string,
        values: series.map(({ labels }) => labels[label] ?? ''),
      })),
      { name: valueName, type: FieldType.number, values: series.map(({ samples }) => number(samples[0])) },
    ],
  });
}

const milliseconds = ([seconds]) => Math.round(1000 * seconds);
const number = ([, text]) => (text === null ? null : text === '+Inf' ? Infinity : text === '-Inf' ? -Infinity : Number(text));
