// Colours of plots: those of the style sheet, and viridis, which is even to the eye and safe for
// readers who do not tell red from green.

const VIRIDIS = [
  [68, 1, 84], [72, 36, 117], [65, 68, 135], [53, 95, 141], [42, 120, 142], [33, 145, 140],
  [34, 168, 132], [68, 191, 112], [122, 209, 81], [189, 223, 38], [253, 231, 37],
];

export function viridis(share) {
  const place = Math.min(1, Math.max(0, share)) * (VIRIDIS.length - 1);
  const below = Math.min(VIRIDIS.length - 2, Math.floor(place));
  const part = place - below;
  return VIRIDIS[below].map((low, i) => Math.round(low + part * (VIRIDIS[below + 1][i] - low)));
}

export function css([red, green, blue]) {
  return `rgb(${red}, ${green}, ${blue})`;
}

export function isLight([red, green, blue]) {
  return 0.299 * red + 0.587 * green + 0.114 * blue > 140;
}

const NAMES = ["page", "card", "ink", "soft", "line", "grid", "accent", "warn", "wall"];

export function theme() {
  const style = getComputedStyle(document.documentElement);
  const read = (name) => style.getPropertyValue(`--${name}`).trim();
  const found = Object.fromEntries(NAMES.map((name) => [name, read(name)]));
  found.lines = [0, 1, 2, 3, 4, 5].map((i) => read(`c${i}`));
  return found;
}

const KEY = "valuetrack-theme";

export function startTheme(button, changed) {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const root = document.documentElement;
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : dark.matches);
  const show = () => {
    button.textContent = isDark() ? "Light" : "Dark";
    changed();
  };
  try {
    const kept = localStorage.getItem(KEY);
    if (kept === "dark" || kept === "light") root.dataset.theme = kept;
  } catch { /* a browser that keeps nothing */ }
  button.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    try {
      localStorage.setItem(KEY, root.dataset.theme);
    } catch { /* as above */ }
    show();
  });
  dark.addEventListener("change", show);
  show();
}
