/** Settings of the build. Empty addresses mean: the server that this page came from. */
function address(text: unknown): string {
  return typeof text === "string" ? text.replace(/\/+$/, "") : "";
}

function interval(text: unknown, otherwise: number): number {
  const ms = Number(text);
  return Number.isFinite(ms) && ms >= 1000 ? ms : otherwise;
}

const env = import.meta.env as Readonly<Record<string, unknown>>;

export const API_BASE_URL = address(env.VITE_API_BASE_URL);
/** Where the broker's API is: that of the broker itself, or its place at the gateway. */
export const MQ_BASE_URL = address(env.VITE_MQ_BASE_URL) || `${API_BASE_URL}/api/v1/queue`;
export const REFRESH_INTERVAL_MS = interval(env.VITE_REFRESH_INTERVAL, 5000);
export const HEALTH_INTERVAL_MS = 2 * REFRESH_INTERVAL_MS;
/** The version that this page is a part of. */
export const PAGE_VERSION = typeof env.VITE_VERSION === "string" ? env.VITE_VERSION : "";
