// Numbers and names as people read them. Text from files only ever becomes textContent.

const MINUS = "\u2212";

const LABELS = {
  evaluation: "Evaluation return",
  return: "Training return",
  loss: "Loss",
  mse: "Squared error of the values",
  coverage: "Coverage of prediction intervals",
  credible_coverage: "Coverage of credible intervals",
  width: "Width of intervals, all cells",
  legal_width: "Width of intervals",
  start_value: "Value at the start",
  value_at_start: "Value at the start",
  discounted_return: "Discounted return",
};

export function label(name) {
  return Object.hasOwn(LABELS, name) ? LABELS[name] : name.replaceAll("_", " ");
}

export function number(value, digits = 4) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e7 || size < 1e-4) {
    const [head, power] = value.toExponential(2).split("e");
    return `${signed(head)}·10^${signed(String(Number(power)))}`;
  }
  const places = Math.max(0, digits - 1 - Math.floor(Math.log10(size)));
  const text = value.toLocaleString("en-US", { maximumFractionDigits: Math.min(places, 8) });
  return signed(text);
}

function signed(text) {
  return text.replace("-", MINUS);
}

export function whole(value) {
  return Math.round(value).toLocaleString("en-US");
}

export function short(value) {
  const size = Math.abs(value);
  if (size >= 1e6) return `${number(value / 1e6, size >= 1e9 ? 5 : 3)} M`;
  if (size >= 1e4) return `${number(value / 1e3, 3)} k`;
  return number(value, 3);
}

export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  const minutes = Math.round(seconds / 60);
  if (seconds < 60) return `${Math.max(1, Math.round(seconds))} s`;
  if (minutes < 60) return `${minutes} min`;
  if (minutes < 48 * 60) return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
  return `${Math.round(minutes / 1440)} days`;
}

export function date(text) {
  return /^\d{4}-\d\d-\d\dT\d\d:\d\d/.test(text) ? text.slice(0, 16).replace("T", " ") : text;
}

export function fileName(...parts) {
  const text = parts.filter(Boolean).join("-").toLowerCase();
  return `${text.replace(/[^a-z0-9]+/g, "-").replace(/^-|-$/g, "").slice(0, 80) || "plot"}.png`;
}
