import { useQueryClient } from "@tanstack/react-query";
import { KeyRound } from "lucide-react";
import { useState, type SyntheticEvent } from "react";
import { setToken } from "../api/access";

interface TokenFormProps {
  /** Why a token is needed. */
  readonly why: string;
  readonly onGiven?: () => void;
}

/** Takes a token, which the page sends in a header until it is closed or loaded again. */
export function TokenForm({ why, onGiven }: TokenFormProps) {
  const client = useQueryClient();
  const [text, setText] = useState("");
  const give = (event: SyntheticEvent) => {
    event.preventDefault();
    setToken(text);
    setText("");
    void client.refetchQueries({ type: "active" });
    onGiven?.();
  };
  return (
    <form className="flex flex-wrap items-center gap-2 text-[13px]" onSubmit={give}>
      <KeyRound size={15} className="text-warn" aria-hidden />
      <span>{why}</span>
      <label className="min-w-0">
        <span className="sr-only">Token</span>
        <input type="password" className="field w-56 max-w-full" placeholder="gpv_…" autoComplete="off" value={text} onChange={(event) => setText(event.target.value)} />
      </label>
      <button type="submit" className="button" disabled={text.trim() === ""}>
        Use this token
      </button>
    </form>
  );
}
