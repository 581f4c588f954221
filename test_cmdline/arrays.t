Files that hold a NumPy array.

  $ cat > make.py << EOF
  > import bloscpack as bp, numpy as np
  > bp.pack_ndarray_to_file(np.arange(600, dtype="<i4"), "array.blp", chunk_size=1200)
  > bp.pack_ndarray_to_file(np.arange(600, dtype="<i4").reshape(200, 3), "table.blp")
  > bp.pack_ndarray_to_file(np.asfortranarray(np.ones((4, 5))), "fortran.blp")
  > EOF
  $ python3 make.py
  $ cat > show.py << EOF
  > import sys, bloscpack as bp
  > for name in sys.argv[1:]:
  >     a = bp.unpack_ndarray_from_file(name)
  >     print(a.dtype, a.shape, a.sum())
  > EOF
  $ python3 show.py array.blp table.blp fortran.blp
  int32 (600,) 179700
  int32 (200, 3) 179700
  float64 (4, 5) 20.0

The command knows their metadata, and decompresses to the bytes of the items.

  $ blpk d array.blp
  blpk: Metadata:
  blpk: {'container': 'numpy', 'dtype': "'<i4'", 'order': 'C', 'shape': [600]}
  $ od -An -t d4 -N 16 array
             0           1           2           3
  $ blpk i table.blp | grep typesize
  typesize:   4

Appended items are items of the array: its shape grows along the first axis.

  $ python3 -c "import sys; sys.stdout.buffer.write(b'\1\0\0\0' * 60)" > ones
  $ blpk a array.blp ones
  $ blpk a table.blp ones
  $ python3 show.py array.blp table.blp
  int32 (660,) 179760
  int32 (220, 3) 179760
  $ blpk i array.blp | grep shape
  shape:      (660,)

What isn't a number of whole rows is refused, and so is every other array that can't
grow that way.

  $ cp table.blp before
  $ printf 1234 > item
  $ blpk a table.blp item
  blpk: error: '4' bytes are to be appended to an array of shape (220, 3) and dtype 'int32', whose rows have '12' bytes (file 'table.blp')
  [1]
  $ cmp table.blp before
  $ cp fortran.blp before
  $ blpk a fortran.blp ones
  blpk: error: an array of shape (4, 5) and order 'F' can't grow along its first axis (file 'fortran.blp')
  [1]
  $ cmp fortran.blp before

An output that is named like a .npy file is one, unless its bytes are asked for.

  $ cat > same.py << EOF
  > import numpy as np, bloscpack as bp
  > assert (np.load("table.npy") == bp.unpack_ndarray_from_file("table.blp")).all()
  > EOF
  $ blpk d table.blp table.npy
  $ python3 same.py
  $ blpk -f d --raw table.blp table.npy > metadata
  $ wc -c < table.npy
  2640
  $ rm metadata same.py table.npy

A .npy file has the metadata of the array; those of the user come from a file and go to
a file.

  $ echo '{"unit": "m"}' > unit.json
  $ blpk d --npy table.blp table.npy
  $ blpk c --npy -m unit.json table.npy unit.blp
  $ blpk metadata --update 'scale=2' unit.blp
  $ blpk metadata --compact unit.blp
  {"container":"numpy","dtype":"'<i4'","metadata":{"scale":2,"unit":"m"},"order":"C","shape":[220,3]}
  $ blpk d --npy --metadata-to again.json unit.blp again.npy
  $ cmp table.npy again.npy
  $ cat again.json
  {
   "unit": "m",
   "scale": 2
  }
  $ blpk metadata --remove shape unit.blp
  blpk: error: 'unit.blp': the metadata beside the array have no key 'shape', but these: scale, unit
  [1]
  $ blpk repack -m unit.json unit.blp && blpk metadata --compact unit.blp
  {"container":"numpy","dtype":"'<i4'","metadata":{"unit":"m"},"order":"C","shape":[220,3]}
  $ rm again.json again.npy unit.blp

So an array may be removed when it is in a .npy file, unless more is known of it.

  $ cp table.blp more.blp && blpk metadata --update 'unit="m"' more.blp
  $ blpk d --rm --npy --output more.npy more.blp
  blpk: error: 'more.blp' has metadata that a .npy file can't have, and --rm would lose: metadata; --metadata-to FILE keeps them
  [1]
  $ blpk d --rm table.blp
  blpk: error: 'table.blp' has metadata, which --rm would lose: --metadata-to FILE keeps them
  [1]
  $ blpk d --rm --npy --output fortran.npy fortran.blp
  $ ls more* fortran* table*
  fortran.npy
  more.blp
  table.blp
  table.npy

  $ rm fortran.npy more.blp table.npy unit.json
  $ rm array array.blp before item make.py ones show.py table.blp
  $ ls -A
