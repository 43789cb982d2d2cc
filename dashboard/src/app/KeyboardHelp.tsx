import { X } from "lucide-react";
import type { RefObject } from "react";
import { PAGES } from "./pages";

const KEYS: readonly (readonly [string, string])[] = [
  ["/", "Search GPUs, from every page"],
  ["j or ↓", "Next row"],
  ["k or ↑", "Previous row"],
  ["Enter", "Open the GPU, host or node; of a finding its GPU"],
  ["+, -, 0", "Enlarge, shrink, show the whole (heat map)"],
  ["Space", "Pick the GPU to compare (heat map)"],
  ["[ and ]", "Previous and next page of the list"],
  ["l", "Live on or off (GPU page)"],
  ...PAGES.flatMap(({ key }) => (key === undefined ? [] : [key])),
  ["t", "Theme: light, dark, as the system"],
  ["u", "Times: of your zone, in UTC"],
  ["?", "This help"],
  ["Esc", "Close"],
];

export function KeyboardHelp({ dialog }: { readonly dialog: RefObject<HTMLDialogElement | null> }) {
  return (
    <dialog ref={dialog} aria-labelledby="keyboard-title" className="card m-auto w-80 p-0 text-fg">
      <div className="flex items-center justify-between border-b border-line px-4 py-2.5">
        <h2 id="keyboard-title" className="font-semibold">
          Keyboard
        </h2>
        <button type="button" className="button quiet square" aria-label="Close" onClick={() => dialog.current?.close()}>
          <X size={16} aria-hidden />
        </button>
      </div>
      <dl className="grid grid-cols-[auto_1fr] items-center gap-x-4 gap-y-2 p-4 text-[13px]">
        {KEYS.map(([key, meaning]) => (
          <div key={key} className="contents">
            <dt>
              <kbd className="key">{key}</kbd>
            </dt>
            <dd className="text-muted">{meaning}</dd>
          </div>
        ))}
      </dl>
    </dialog>
  );
}
