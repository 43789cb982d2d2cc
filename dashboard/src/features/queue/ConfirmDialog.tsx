import { useEffect, useRef, type ReactNode } from "react";

interface ConfirmDialogProps {
  readonly title: string;
  readonly children: ReactNode;
  /** What happens, in the words of the button. */
  readonly action: string;
  readonly busy: boolean;
  readonly onConfirm: () => void;
  readonly onClose: () => void;
}

/** Asks before something that cannot be undone. Escape and the first focus are the way out. */
export function ConfirmDialog({ title, children, action, busy, onConfirm, onClose }: ConfirmDialogProps) {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => dialog.current?.showModal(), []);
  return (
    <dialog ref={dialog} aria-labelledby="confirm-title" className="card m-auto w-[min(28rem,calc(100vw-2rem))] p-0 text-fg" onClose={onClose}>
      <div className="p-4">
        <h2 id="confirm-title" className="font-semibold">
          {title}
        </h2>
        <div className="mt-2 space-y-2 text-[13px] text-muted">{children}</div>
        <div className="mt-4 flex justify-end gap-2">
          <button type="button" className="button" autoFocus onClick={() => dialog.current?.close()}>
            Cancel
          </button>
          <button type="button" className="button border-bad! text-bad" disabled={busy} onClick={onConfirm}>
            {action}
          </button>
        </div>
      </div>
    </dialog>
  );
}
