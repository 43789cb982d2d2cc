import tailwindcss from "@tailwindcss/vite";
import react from "@vitejs/plugin-react";
import { defineConfig } from "vitest/config";
import manifest from "./package.json" with { type: "json" };

// In development the page runs on Vite's port and passes everything else on to a running gpuvitals.
const gateway = process.env.GPUVITALS_URL ?? "http://127.0.0.1:8081";

export default defineConfig({
  plugins: [react(), tailwindcss()],
  define: { "import.meta.env.VITE_VERSION": JSON.stringify(manifest.version) },
  server: {
    proxy: Object.fromEntries(
      ["/api", "/health", "/metrics", "/stats", "/docs", "/openapi.yaml"].map((path) => [path, { target: gateway, changeOrigin: true }]),
    ),
  },
  build: { target: "es2022", sourcemap: false, reportCompressedSize: false, license: { fileName: "licenses.md" } },
  test: {
    environment: "happy-dom",
    include: ["src/**/*.test.{ts,tsx}"],
    setupFiles: ["src/testing/setup.ts"],
    // A file's tests leave nothing behind, so that files share what they import: a quarter of the time.
    isolate: false,
    restoreMocks: true,
    unstubGlobals: true,
  },
});
