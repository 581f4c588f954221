Datasets: folders that hold an array, a table or a group.

  $ python3 - << 'EOF'
  > import numpy as np
  > from bloscpack import dataset
  > days = np.arange(60, dtype='i4')
  > options = {'chunks': 10, 'shards': 30}
  > dataset.create_array('day', days, attrs={'unit': 'd'}, **options).close()
  > columns = {'day': days, 'price': days / 4}
  > dataset.create_table('prices', columns, layout='bcolz', chunks=20).close()
  > np.save('more.npy', np.array([60, 61], 'i4'))
  > EOF
  $ blpk info day
  kind:        array
  layout:      zarr
  shape:       (60,)
  dtype:       <i4
  nchunks:     6
  chunk shape: (10,)
  shards:      (30,)
  fill value:  0
  codec:       lz4, level 5, filter shuffle
  checksum:    crc32c
  plain:       240 bytes
  packed:      * (glob)
  ratio:       * (glob)
  files:       2
  attributes:  {"unit":"d"}
  $ blpk info prices | tail -n 2
  day    *  <i4 (60,) bcolz (glob)
  price  *  <f8 (60,) bcolz (glob)

A line for each array, and each column:

  $ blpk list --bytes day prices
  plain * name (glob)
    240 * <i4 (60,) zarr   day (glob)
    240 * <i4 (60,) bcolz  prices/day (glob)
    480 * <f8 (60,) bcolz  prices/price (glob)
    960 * total of 3 arrays (glob)
  $ blpk list --json prices | grep '"file"'
      "file": "prices/day",
      "file": "prices/price",

Rows go in and out as bytes, or as files of NumPy.

  $ blpk cat --rows 0:60:20 day | od -A n -t d4
             0          20          40
  $ blpk append day more.npy
  $ head -c 4 /dev/zero | blpk append day -
  $ blpk cat --rows=-3: day | od -A n -t d4
            60          61           0
  $ head -c 5 /dev/zero | blpk append day -
  blpk: error: standard input: expected a multiple of '4' bytes for dtype 'int32' and shape (-1,), found '5'
  [2]
  $ blpk append prices more.npy
  blpk: error: 'more.npy': expected the fields day, price, found <i4 (2,) npy
  [2]

Attributes are the metadata of a dataset.

  $ blpk metadata --update 'zone="UTC"' --remove unit day
  $ blpk metadata --compact day
  {"zone":"UTC"}

Everything is checked. bcolz has no digests.

  $ blpk verify day prices
  day: ok (zarr array, 7 chunks in 3 files, 252.0B)
  prices: ok (bcolz table, 6 chunks in 6 files, 720.0B)
    note: '.': there are no digests: damage is found only where the codec fails (section 'chunks')
  $ blpk info --chunks day | tail -n 1
    252.0B    *  7 chunks, 0 damaged: day (glob)

Damage is named, and the exit code is 3.

  $ rm day/c/1
  $ printf '!' | dd of=day/c/0 bs=1 seek=264 conv=notrunc status=none
  $ blpk verify day
  day: damaged (zarr array, 3 of 7 chunks in 3 files, 92.0B good)
    error: 'c/0': Checksum mismatch * rows 0 to 10) (glob)
    error: 'c/1': the file is missing (section 'files', rows 30 to 60)
  [3]
  $ blpk recover day saved
  day: 3 of 7 chunks saved to saved
    error: 'c/0': Checksum mismatch * rows 0 to 10) (glob)
    error: 'c/1': the file is missing (section 'files', rows 30 to 60)
    lost: rows 0 to 10
    lost: rows 30 to 60
    note: lost rows of the array are filled with -2147483647
  [3]
  $ blpk verify saved
  saved: ok (zarr array, 7 chunks in 3 files, 252.0B)
    note: '.': recovered from damage: rows 0 to 10, 30 to 60 are filled with -2147483647 (section 'metadata')
  $ blpk cat --rows 8:12 saved | od -A n -t d4
   -2147483647 -2147483647          10          11
  $ blpk recover day saved
  blpk: error: '*saved': File exists; --force replaces it (glob)
  [1]
  $ blpk -f recover --drop day saved | tail -n 1
    lost: rows 30 to 60
  $ blpk cat saved | wc -c
  92

A copy of one moment; each of the two can be changed by itself.

  $ blpk snapshot saved kept
  $ blpk snapshot saved kept
  blpk: error: '*kept': File exists; --force replaces it (glob)
  [1]
  $ blpk append saved more.npy && blpk cat kept | wc -c && blpk verify kept | head -n 1
  92
  kept: ok (zarr array, 3 chunks in 1 file, 92.0B)
  $ blpk -f snapshot saved kept && diff -r saved kept && rm -r kept

A folder with datasets inside of it is a group. With files beside them it is a folder of
files; -r includes the datasets.

  $ blpk verify . | head -n 1
  .: damaged (folder group, 12 of 16 chunks in 10 files, 912.0B good)
  $ printf abc > x && blpk compress x && blpk verify -r . 2> skipped | grep '^[.]'
  ./day: damaged (zarr array, 3 of 7 chunks in 3 files, 92.0B good)
  ./prices: ok (bcolz table, 6 chunks in 6 files, 720.0B)
  ./saved: ok (zarr array, 3 chunks in 1 file, 100.0B)
  ./x.blp: ok (1 chunk, 3.0B)
  $ rm -r day prices saved more.npy x x.blp skipped
