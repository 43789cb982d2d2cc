import { Check, Copy, X } from "lucide-react";
import { useEffect, useState } from "react";
import { copyText } from "../shared/clipboard";

const SAID_FOR_MS = 1500;

/** Copies a text and says whether it did. */
export function CopyButton({ text, label }: { readonly text: string; readonly label: string }) {
  const [copied, setCopied] = useState<boolean | null>(null);
  useEffect(() => {
    if (copied === null) return;
    const timer = setTimeout(() => setCopied(null), SAID_FOR_MS);
    return () => clearTimeout(timer);
  }, [copied]);
  const Icon = copied === null ? Copy : copied ? Check : X;
  const said = copied === null ? label : copied ? "Copied" : "Not copied: the browser does not allow it";
  return (
    <button type="button" className="rounded p-0.5 text-faint hover:text-fg" aria-label={said} title={said} onClick={() => void copyText(text).then(setCopied)}>
      <Icon size={12} aria-hidden />
    </button>
  );
}

/** A command as it is typed. */
export function Command({ text }: { readonly text: string }) {
  return (
    <span className="rounded bg-raised box-decoration-clone px-1 py-0.5">
      <code className="font-mono text-xs break-words">{text}</code>
      <CopyButton text={text} label={`Copy ${text}`} />
    </span>
  );
}
