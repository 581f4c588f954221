Looking at data: show, diff, info, and convert to standard output.

  $ python3 -c 'import pyarrow' 2> /dev/null || exit 80  # reads CSV

  $ printf 'time,price,name\n' > t.csv
  $ for i in 1 2 3 4 5 6 7 8 9 10 11 12; do echo "$i,$i.5,n$i"; done >> t.csv
  $ blpk convert t.csv t.zarr
  $ blpk convert t.csv t.npy
  $ blpk compress --npy t.npy t.blp

  $ blpk show t.zarr
  t.zarr: table (zarr) of 12 rows
  plain 288.0B, packed *, ratio *, codec lz4, level 5, filter shuffle (glob)
  
       time  price    name
        <i8    <f8  object
    0     1    1.5      n1
    1     2    2.5      n2
    2     3    3.5      n3
    3     4    4.5      n4
    4     5    5.5      n5
  ...   ...    ...     ...
    7     8    8.5      n8
    8     9    9.5      n9
    9    10   10.5     n10
   10    11   11.5     n11
   11    12   12.5     n12
  $ blpk show --rows 3:5 --fields time,name t.blp
  t.blp: [('time', '<i8'), ('p... (12,) blp 3
  plain 336.0B, packed *, ratio *, codec blosclz, filter shuffle (glob)
  
     time  name
      <i8   <U3
  3     4    n4
  4     5    n5
  $ blpk show --stats t.zarr | cat
  t.zarr: table (zarr) of 12 rows
  plain 288.0B, packed *, ratio *, codec lz4, level 5, filter shuffle (glob)
  
         min   max  mean  count  missing
   time    1    12   6.5     12        0
  price  1.5  12.5     7     12        0
   name    -     -     -     12        0

Files of different formats are compared item by item.

  $ blpk diff t.zarr t.npy
  $ sed 's/^7,7.5/7,7.25/' t.csv > other.csv
  $ blpk convert other.csv other.zarr
  $ blpk diff t.zarr other.zarr
  price: 1 of 12 items differs
    index  first  second
    [6]    7.5    7.25
  [1]
  $ blpk diff -q t.zarr other.zarr
  [1]

A file is described like a dataset.

  $ blpk info t.blp
  kind:       array
  format:     blp 3
  shape:      (12,)
  dtype:      [('time', '<i8'), ('price', '<f8'), ('name', '<U3')]
  nchunks:    1
  chunk size: 336 bytes
  block size: 336 bytes, not split
  typesize:   28
  codec:      blosclz, filter shuffle
  checksum:   adler32
  room:       for 10 more chunks, and * more bytes of metadata (glob)
  plain:      336 bytes
  packed:     * (glob)
  ratio:      * (glob)
  $ blpk info --json t.blp | grep -c meta_options
  1

Any of them can be written to a pipe, and raw items need a dtype and a shape.

  $ blpk convert --to csv t.zarr - | head -n 2
  time,price,name
  1,1.5,n1
  $ cat t.csv | blpk convert - piped.zarr
  $ blpk diff piped.zarr t.zarr
  $ blpk convert --to zarr t.npy -
  blpk: error: the format 'zarr' is a folder, which can't be written to a stream; npy, npz, blp, csv, parquet, hdf5 can
  [2]
  $ head -c 4800 /dev/zero > raw.f4
  $ blpk convert --dtype f4 --shape -1,300 raw.f4 raw.zarr
  $ blpk show raw.zarr | head -n 1
  raw.zarr: <f4 (4, 300) zarr
  $ blpk convert --dtype f4 --shape 5,300 raw.f4 wrong.zarr
  blpk: error: 'raw.f4': expected '6000' bytes for dtype 'float32' and shape (5, 300), found '4800'
  [2]
