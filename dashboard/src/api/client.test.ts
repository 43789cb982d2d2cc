import { describe, expect, it, vi } from "vitest";
import { HEALTH, mockApi, ok } from "../testing/mockApi";
import { api, ApiError, dataOf, type Failure } from "./client";
import { answered, unanswered } from "./reachability";

async function failureOf(): Promise<Failure | "none"> {
  try {
    dataOf(await api.GET("/health"));
    return "none";
  } catch (error) {
    if (error instanceof ApiError) return error.failure;
    throw error;
  }
}

const refusal = { error: "bad request", message: "limit is 0; choose 1 to 1000", code: "bad_request" };

describe("errors are told apart", () => {
  it.each([
    ["an answer", ok(HEALTH), "none"],
    ["an unhealthy gateway is an answer", { status: 503, body: { ...HEALTH, status: "unhealthy" } }, "none"],
    ["nobody answers", "unreachable", { kind: "network" }],
    ["no JSON", { status: 200, body: "<html>" }, { kind: "json", status: 200 }],
    ["an empty answer", { status: 200, body: "" }, { kind: "json", status: 200 }],
    ["a proxy with nobody behind it", { status: 502, body: "<html>" }, { kind: "json", status: 502 }],
    ["a refusal", { status: 400, body: refusal }, { kind: "server", status: 400, code: "bad_request", message: refusal.message }],
    ["a refusal without words", { status: 500, body: {} }, { kind: "server", status: 500, code: "", message: "The API refused with status 500." }],
    ["a refusal that is null", { status: 500, body: "null" }, { kind: "server", status: 500 }],
  ] as const)("%s", async (_name, answer, expected) => {
    mockApi({ "/health": answer });
    const failure = await failureOf();
    if (typeof expected === "string") expect(failure).toBe(expected);
    else expect(failure).toMatchObject(expected);
  });

  it("says what happened in words", () => {
    expect(new ApiError({ kind: "network", cause: null }).message).toBe("The API did not answer.");
    expect(new ApiError({ kind: "json", status: 502 }).message).toContain("502");
    expect(new ApiError({ kind: "server", status: 400, code: "x", message: "too long" }).message).toBe("too long");
  });

  it("a request that the page gave up says nothing about the API", async () => {
    mockApi({ "/health": "never" });
    vi.stubGlobal("fetch", (_request: Request, init: RequestInit) =>
      new Promise((_resolve, reject) => init.signal?.addEventListener("abort", () => reject(new DOMException("gone", "AbortError")))),
    );
    const control = new AbortController();
    const asked = api.GET("/health", { signal: control.signal });
    control.abort();
    await expect(asked).rejects.not.toBeInstanceOf(ApiError);
  });
});

it("remembers since when nobody answers, not the last failure", async () => {
  const { useUnreachableSince } = await import("./reachability");
  const { renderHook, act } = await import("@testing-library/react");
  vi.useFakeTimers({ now: 1000 });
  try {
    const since = renderHook(() => useUnreachableSince()).result;
    expect(since.current).toBeNull();
    act(unanswered);
    vi.setSystemTime(9000);
    act(unanswered);
    expect(since.current).toBe(1000);
    act(answered);
    expect(since.current).toBeNull();
  } finally {
    vi.useRealTimers();
  }
});
