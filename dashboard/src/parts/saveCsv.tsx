import { Download } from "lucide-react";
import { useState } from "react";
import { fileName, saveFile } from "../shared/files";
import { lackOf } from "./csv";

interface SaveCsvProps {
  /** What is in it: the file is called so. */
  readonly label: string;
  readonly text: () => string | Promise<string>;
}

/** Gives what is shown as a file. */
export function SaveCsv({ label, text }: SaveCsvProps) {
  const [remark, setRemark] = useState("");
  const save = async () => {
    const csv = await text();
    saveFile(`${fileName(label)}.csv`, new Blob([csv], { type: "text/csv" }));
    const lack = lackOf(csv);
    if (lack !== "") setRemark(`The file is not whole. ${lack}`);
  };
  return (
    <p className="flex items-center justify-end gap-2 text-xs text-warn">
      <span role="status">{remark}</span>
      <button
        type="button"
        className="button quiet"
        title={`As a file: ${label}`}
        onClick={() => {
          setRemark("");
          save().catch((error: unknown) => setRemark(`The file could not be made: ${error instanceof Error ? error.message : "no answer"}`));
        }}
      >
        <Download size={13} aria-hidden /> CSV
      </button>
    </p>
  );
}
