import { useQuery } from "@tanstack/react-query";
import { useEffect } from "react";
import { criticalsQuery } from "../api/findings";
import { gpuQuery } from "../api/queries";
import { GPU } from "../parts/addresses";
import { titleOf, type Route } from "./routes";

/** Says in the browser's tab what the page shows, by its name, and how many critical findings there are: also while another tab is looked at. */
export function useTitle(route: Route | null): void {
  const { data: criticals = 0 } = useQuery({ ...criticalsQuery(), notifyOnChangeProps: ["data"] });
  const id = route?.page.path === GPU.path ? (route.named.id ?? "") : "";
  // The page of the GPU asks; here its answer is only looked at.
  const { data: name } = useQuery({ ...gpuQuery(id, 0), enabled: false, select: ({ gpu }) => gpu.name, notifyOnChangeProps: ["data"] });
  const title = name === undefined || id === "" ? titleOf(route) : `${name} · gpuvitals`;
  useEffect(() => {
    document.title = criticals === 0 ? title : `${criticals.toLocaleString("en")} critical ${criticals === 1 ? "finding" : "findings"} · ${title}`;
  }, [criticals, title]);
}
