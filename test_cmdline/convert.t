Arrays, tables and groups are converted from format to format.

  $ cat > make.py << EOF
  > import numpy as np
  > np.save("a.npy", np.arange(6000.0).reshape(1000, 6))
  > np.savez("g.npz", x=np.arange(3), **{"inner/y": np.arange(4)})
  > t = np.zeros(1000, [("x", "<i4"), ("y", "U3")])
  > t["x"] = np.arange(1000)
  > np.save("t.npy", t)
  > EOF
  $ python3 make.py

The names say which formats to write. Nothing is lost on the way.

  $ blpk convert a.npy a.blp
  $ blpk convert a.blp a.zarr
  $ blpk convert -c zlib -9 a.zarr a.bcolz
  $ blpk convert a.bcolz back.npy
  $ cmp a.npy back.npy
  $ blpk convert t.npy t.zarr
  $ blpk convert t.zarr back_t.npy
  $ cmp t.npy back_t.npy
  $ blpk convert g.npz g.zarr
  $ blpk convert --json g.zarr back.npz
  {
    "source": "g.zarr",
    "target": "back.npz",
    "source_format": "zarr",
    "target_format": "npz",
    "kind": "group",
    "nbytes": 56,
    "lost": [],
    "recovered": [],
    "notes": []
  }

The option --to names the format, too. Text is written with a line of names.

  $ blpk convert --to csv t.zarr text
  $ head -n 3 text
  x,y
  0,
  1,

What a target can't hold is said once.

  $ echo '{"unit": "m"}' > meta.json
  $ blpk metadata --set meta.json a.blp
  $ blpk convert a.blp c.zarr
  $ blpk convert c.zarr c.npy
  blpk: 'c.npy' can't hold the attributes of 'c.zarr'

An existing target stays, unless -f replaces it.

  $ blpk convert a.npy a.zarr
  blpk: error: output file 'a.zarr' exists!
  [1]
  $ blpk convert a.npy c.npy
  blpk: error: output file 'c.npy' exists!
  [1]
  $ blpk -f convert t.npy a.zarr
  $ blpk -f convert a.zarr c.npy
  $ cmp t.npy c.npy
  $ mkdir other && touch other/file
  $ blpk -f convert --to zarr a.npy other
  blpk: error: '*/other': it is not a dataset, and is not replaced by one (glob)
  [1]

Wrong usage, and damage: no target appears.

  $ blpk convert a.npy a
  blpk: error: the name 'a' does not say which format to write; the formats are npy, npz, blp, csv, parquet, * (glob)
  [2]
  $ blpk convert g.npz d.npy
  blpk: error: 'd.npy': the format 'npy' can't hold a group; npz, * can (glob)
  [2]
  $ blpk convert missing.npy d.npy
  blpk: error: input file 'missing.npy' does not exist!
  [1]
  $ blpk convert meta.json d.npy
  blpk: error: expected one of the formats * (glob)
  [1]
  $ head -c 20000 a.npy > short.npy
  $ blpk convert short.npy d.zarr
  blpk: error: the file ends too early: expected '48000' bytes for the items of the array, found '19872' (file 'short.npy')
  [3]
  $ head -c 100 a.bcolz/data/__0.blp > chunk && mv chunk a.bcolz/data/__0.blp
  $ blpk convert a.bcolz d.npz
  blpk: error: *a.bcolz/data/__0.blp* (glob)
  [3]
  $ ls -A
  a.bcolz
  a.blp
  a.npy
  a.zarr
  back.npy
  back.npz
  back_t.npy
  c.npy
  c.zarr
  g.npz
  g.zarr
  make.py
  meta.json
  other
  short.npy
  t.npy
  t.zarr
  text
