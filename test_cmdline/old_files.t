Files of the releases before 0.3: versions 0, 1 and 2.

  $ awk 'BEGIN { for (i = 1; i <= 1000; i++) print i }' > numbers

Their chunks are like those of today, behind other headers.

  $ blpk c -l 0 -z 2000 -o -k None numbers
  $ tail -c +33 numbers.blp > chunks
  $ { printf 'blpk\2\0\0\0'; cat chunks; } > v0.blp
  $ { printf 'blpk\1\0\0\0\2\0\0\0\0\0\0\0'; cat chunks; } > v1.blp
  $ { printf 'blpk\2\0\0\10\320\7\0\0\145\7\0\0\2\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0'
  >   cat chunks; } > v2.blp
  $ for version in 0 1 2; do
  >   blpk d v$version.blp && cmp v$version numbers && rm v$version
  > done

  $ blpk info v0.blp
  kind:       bytes
  format:     blp 0
  nchunks:    2
  chunk size: 1.95K (2000 bytes)
  block size: 1.95K (2000 bytes), not split
  typesize:   8
  codec:      blosclz, filter shuffle, the first chunk stored uncompressed
  checksum:   None
  room:       none: there is no offset table
  plain:      3.8K (3893 bytes)
  packed:     3.84K (3933 bytes)
  ratio:      0.99
  $ blpk info v1.blp | sed -n 2p
  format:     blp 1
  $ blpk info v2.blp
  kind:       bytes
  format:     blp 2
  nchunks:    2
  chunk size: 1.95K (2000 bytes), the last chunk 1.85K (1893 bytes)
  block size: 1.95K (2000 bytes), not split
  typesize:   8
  codec:      blosclz, filter shuffle, the first chunk stored uncompressed
  checksum:   None
  room:       none: there is no offset table
  plain:      3.8K (3893 bytes)
  packed:     3.86K (3957 bytes)
  ratio:      0.98

They can't be appended to in place. By default a file of version 3 replaces them.

  $ cp v1.blp before
  $ blpk a --no-grow v1.blp numbers
  blpk: error: format version of file was not '3' as expected, but '1': files of this version can be read, but not appended to (file 'v1.blp', section 'header')
  [1]
  $ cmp v1.blp before
  $ cp v1.blp new.blp
  $ blpk a new.blp numbers
  $ blpk info new.blp | grep format
  format:     blp 3
  $ rm new.blp

Damage is found where the version allows it.

  $ head -c 3000 v0.blp > short.blp
  $ blpk d short.blp
  blpk: error: the file ends too early: * (file 'short.blp', section 'chunks', chunk 1, byte 2024) (glob)
  [3]

Versions that were never released, or are not known.

  $ { printf 'blpk\4'; tail -c +6 v2.blp; } > v4.blp
  $ blpk d v4.blp
  blpk: error: format version of file was not '3' as expected, but '4' (file 'v4.blp', section 'header', byte 4)
  [1]

  $ rm before chunks numbers numbers.blp short.blp v0.blp v1.blp v2.blp v4.blp
  $ ls -A
