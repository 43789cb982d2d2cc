import { fetchCsv } from "../api/client";
import type { ChartAction } from "../charts/ChartMenu";
import { copyText } from "../shared/clipboard";
import { API_BASE_URL } from "../shared/config";
import { fileName, saveFile } from "../shared/files";

/** The question behind a chart, to be asked elsewhere: its values as a file of a name, and as address and command. */
export function queryActions(path: string, ...names: readonly string[]): ChartAction[] {
  const url = new URL(`${API_BASE_URL}${path}`, window.location.href).href;
  return [
    {
      name: "Values (CSV)",
      act: async () => {
        const text = await fetchCsv(path);
        saveFile(`${fileName(...names)}.csv`, new Blob([text], { type: "text/csv" }));
        return true;
      },
    },
    { name: "Copy as query", act: () => copyText(url) },
    { name: "Copy as curl", act: () => copyText(`curl -sS -H 'accept: text/csv' '${url.replaceAll("'", "%27")}'`) },
  ];
}
