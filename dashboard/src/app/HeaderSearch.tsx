import { Search } from "lucide-react";
import { useRef, useState } from "react";
import { flushSync } from "react-dom";
import { FLEET } from "../parts/addresses";
import { SearchField } from "../parts/list";
import { useAddress } from "../shared/address";
import { goTo, usePlace } from "../shared/location";
import { useShortcuts } from "../shared/shortcuts";

/** Finds GPUs from every page by whatever the product calls them. On the page of GPUs it filters as one types; elsewhere Enter leads there. */
export function HeaderSearch() {
  const { pathname } = usePlace();
  const isThere = pathname === FLEET.path;
  const { state, change } = useAddress(FLEET);
  const field = useRef<HTMLInputElement>(null);
  const [isOpen, setIsOpen] = useState(false);
  const searched = isThere ? state.search : "";
  const open = () => {
    // A narrow header shows the field only then, and what is hidden takes no focus.
    flushSync(() => setIsOpen(true));
    field.current?.focus();
  };
  useShortcuts({ "/": open });
  const lead = (text: string) => {
    setIsOpen(false);
    if (isThere) change({ search: text });
    else if (text !== "") goTo(FLEET.to({ search: text }));
  };
  const isShown = isOpen || searched !== "";
  return (
    <>
      <button type="button" className="button quiet square md:order-last 2xl:hidden" aria-label="Search" aria-expanded={isShown} title="Search GPUs (/)" onClick={() => (isOpen ? setIsOpen(false) : open())}>
        <Search size={16} aria-hidden />
      </button>
      <div role="search" aria-label="Of all GPUs" className={`order-[10000] w-full pb-1.5 2xl:order-none 2xl:block 2xl:w-64 2xl:pb-0 ${isShown ? "" : "hidden"}`}>
        <SearchField
          key={isThere ? "there" : "elsewhere"}
          label="Search GPUs"
          placeholder="GPU, host, job, user"
          searched={searched}
          onChange={(text) => isThere && change({ search: text })}
          onEnter={lead}
          onEscape={() => setIsOpen(false)}
          field={field}
          className="block w-full"
        />
      </div>
    </>
  );
}
