import { Download } from "lucide-react";
import { useState } from "react";
import { fileName, saveFile } from "../shared/files";

interface SaveCsvProps {
  /** What is in it: the file is called so. */
  readonly label: string;
  readonly text: () => string | Promise<string>;
}

/** Gives what is shown as a file. */
export function SaveCsv({ label, text }: SaveCsvProps) {
  const [failure, setFailure] = useState("");
  const save = async () => saveFile(`${fileName(label)}.csv`, new Blob([await text()], { type: "text/csv" }));
  return (
    <p className="flex items-center justify-end gap-2 text-xs text-warn">
      <span role="status">{failure}</span>
      <button
        type="button"
        className="button quiet"
        title={`As a file: ${label}`}
        onClick={() => {
          setFailure("");
          save().catch((error: unknown) => setFailure(`The file could not be made: ${error instanceof Error ? error.message : "no answer"}`));
        }}
      >
        <Download size={13} aria-hidden /> CSV
      </button>
    </p>
  );
}
