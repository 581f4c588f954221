// Prints an array of Zarr at a URL as JSON: shape, data type and items.
import * as zarr from "zarrita";

const store = new zarr.FetchStore(process.argv[2]);
const array = await zarr.open.v3(store, { kind: "array" });
const { shape, data } = await zarr.get(array);
const items = Array.from(data, Number);
console.log(JSON.stringify({ shape, dtype: array.dtype, items }));
