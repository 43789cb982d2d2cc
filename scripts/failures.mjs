// Reads a test report: prints how many passed and how many failed, then a line for each failure, its name and the first lines of why.
// A report that cannot be read is one failure. Arguments: vitest|playwright|junit FILE.
import { readFileSync } from "node:fs";

const [kind, file] = process.argv.slice(2);

// A message in one line, without the codes of colours.
const line = (text) => (text ?? "").replace(/\x1b\[[0-9;]*m/g, "").split("\n").map((part) => part.trim()).filter(Boolean).slice(0, 6).join(" | ");

const kinds = {
  vitest(text) {
    const report = JSON.parse(text);
    const tests = report.testResults.flatMap((of) => [
      ...(of.status === "failed" && of.assertionResults.length === 0 ? [{ fullName: of.name, failureMessages: [of.message] }] : []),
      ...of.assertionResults.filter((test) => test.status === "failed"),
    ]);
    return {
      passed: report.numPassedTests,
      failed: Math.max(tests.length, report.numFailedTests, report.success ? 0 : 1),
      why: tests.map((test) => `${test.fullName}: ${line(test.failureMessages[0])}`),
    };
  },
  playwright(text) {
    const report = JSON.parse(text);
    const specs = (suite) => [...(suite.suites ?? []).flatMap(specs), ...(suite.specs ?? [])];
    // What passed when it was tried again has passed: only measured times are.
    const broken = report.suites.flatMap(specs).filter((spec) => !spec.ok);
    return {
      passed: report.stats.expected + report.stats.flaky,
      failed: report.stats.unexpected + report.errors.length + (report.stats.expected ? 0 : 1),
      why: [
        ...report.errors.map((error) => line(error.message)),
        ...broken.map((spec) => `${spec.file}:${spec.line} ${spec.title}: ${line(spec.tests[0]?.results[0]?.error?.message)}`),
      ],
    };
  },
  junit(text) {
    // pytest counts in the one suite, the others over all.
    const total = (of) => Number(text.match(new RegExp(`<testsuites?[^>]* ${of}="(\\d+)"`))?.[1] ?? 0);
    const failed = total("failures") + total("errors");
    const cases = [...text.matchAll(/<testcase[^>]*name="([^"]*)"[^>]*>\s*<(?:failure|error)[^>]*message="([^"]*)"/g)];
    return {
      passed: total("tests") - failed - total("skipped"),
      failed: total("tests") ? failed : 1,
      why: cases.map(([, name, message]) => `${name}: ${line(message.replaceAll("&#10;", "\n"))}`),
    };
  },
};

let report;
try {
  report = kinds[kind](readFileSync(file, "utf8"));
} catch (error) {
  report = { passed: 0, failed: 1, why: [`no report: ${error.message}`] };
}
for (const line of [`${report.passed} ${report.failed}`, ...report.why]) console.log(line);
