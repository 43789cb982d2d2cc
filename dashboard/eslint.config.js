import js from "@eslint/js";
import hooks from "eslint-plugin-react-hooks";
import tseslint from "typescript-eslint";

// Imports go one way: app -> features -> parts -> charts -> api -> shared. Nothing that ships knows src/testing or
// e2e, and no feature another: what two of them have is a part.
const forbid = (files, folders, more = []) => ({
  files,
  ignores: ["src/**/*.test.{ts,tsx}", "src/testing/**"],
  rules: {
    "no-restricted-imports": [
      "error",
      {
        patterns: [
          ...folders.map((folder) => ({
            group: [`**/${folder}/**`, `**/${folder}`],
            message: "imports go app -> features -> parts -> charts -> api -> shared; tests' helpers never ship",
          })),
          ...more,
        ],
      },
    ],
  },
});

export default tseslint.config(
  { ignores: ["dist", "src/api/*schema.d.ts", "test-results", "playwright-report"] },
  js.configs.recommended,
  ...tseslint.configs.strictTypeChecked,
  { languageOptions: { parserOptions: { projectService: true, tsconfigRootDir: import.meta.dirname } } },
  hooks.configs.flat["recommended-latest"],
  {
    rules: {
      "no-console": "error",
      eqeqeq: "error",
      "max-lines": ["error", 600],
      "@typescript-eslint/restrict-template-expressions": ["error", { allowNumber: true }],
      "@typescript-eslint/no-confusing-void-expression": ["error", { ignoreArrowShorthand: true }],
      "@typescript-eslint/consistent-type-imports": "error",
    },
  },
  {
    files: ["**/*.js", "**/*.mjs"],
    ...tseslint.configs.disableTypeChecked,
    languageOptions: {
      parserOptions: { projectService: false },
      globals: { URL: false, setInterval: false, clearInterval: false },
    },
  },
  forbid(["src/app/**", "src/main.tsx"], ["testing", "e2e"]),
  forbid(["src/features/**"], ["testing", "e2e", "app"], [{ regex: "^\\.\\./(?!\\.\\./)|/features/", message: "a feature imports no other: what two of them have is a part" }]),
  forbid(["src/parts/**"], ["testing", "e2e", "app", "features"]),
  forbid(["src/charts/**"], ["testing", "e2e", "app", "features", "parts"]),
  forbid(["src/api/**"], ["testing", "e2e", "app", "features", "parts", "charts"]),
  forbid(["src/shared/**"], ["testing", "e2e", "app", "features", "parts", "charts", "api"]),
);
