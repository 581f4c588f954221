What a compressed file says about itself.

  $ awk 'BEGIN { for (i = 1; i <= 1000; i++) print i }' > numbers
  $ blpk c -l 0 -t 1 -z 1K numbers
  $ blpk info numbers.blp
  kind:       bytes
  format:     blp 3
  nchunks:    4
  chunk size: 1.0K (1024 bytes), the last chunk 821 bytes
  block size: 1.0K (1024 bytes), not split
  typesize:   1
  codec:      blosclz, filter shuffle, the first chunk stored uncompressed
  checksum:   adler32
  room:       for 40 more chunks
  plain:      3.8K (3893 bytes)
  packed:     4.25K (4357 bytes)
  ratio:      0.89

With metadata, which have room to grow.

  $ echo '{"unit": "metre", "from": [1, 2]}' > meta
  $ blpk -f c -z 2K -k sha256 -m meta numbers
  $ blpk i numbers.blp
  kind:       bytes
  format:     blp 3
  nchunks:    2
  chunk size: 2.0K (2048 bytes), the last chunk 1.8K (1845 bytes)
  block size: 2.0K (2048 bytes), split by the bytes of the items
  typesize:   8
  codec:      blosclz, filter shuffle
  checksum:   sha256
  room:       for 20 more chunks, and 261 more bytes of metadata
  plain:      3.8K (3893 bytes)
  packed:     2.08K (2127 bytes)
  ratio:      1.83
  metadata:   {"from":[1,2],"unit":"metre"}

Any name will do, and -v adds little.

  $ blpk -f c -o -k None -l 0 numbers
  $ mv numbers.blp numbers.dat
  $ blpk -v -n 1 info numbers.dat
  blpk: using 1 thread
  kind:       bytes
  format:     blp 3
  nchunks:    1
  chunk size: 3.8K (3893 bytes)
  block size: 3.8K (3888 bytes), not split
  typesize:   8
  codec:      blosclz, filter shuffle, the first chunk stored uncompressed
  checksum:   None
  room:       none: there is no offset table
  plain:      3.8K (3893 bytes)
  packed:     3.85K (3941 bytes)
  ratio:      0.99
  blpk: done

An array, with the label of a dataset for each fact.

  $ python -c "import numpy; numpy.save('a.npy', numpy.arange(3000.).reshape(300, 10))"
  $ blpk c --npy a.npy a.blp
  $ blpk info a.blp
  kind:       array
  format:     blp 3
  shape:      (300, 10)
  dtype:      <f8
  nchunks:    1
  chunk size: 23.44K (24000 bytes)
  block size: 23.44K (24000 bytes), split by the bytes of the items
  typesize:   8
  codec:      blosclz, filter shuffle
  checksum:   adler32
  room:       for 10 more chunks, and 594 more bytes of metadata
  plain:      23.44K (24000 bytes)
  packed:     1.82K (1867 bytes)
  ratio:      12.85

Several files have titles.

  $ blpk info a.blp numbers.dat | grep -e "'" -e kind
  'a.blp':
  kind:       array
  'numbers.dat':
  kind:       bytes

Nothing is checked but what is shown: damage further on is not seen.

  $ head -c 1000 numbers.dat > cut.blp
  $ blpk info cut.blp > /dev/null
  [3]
  $ blpk decompress cut.blp
  blpk: error: the file ends too early: * (file 'cut.blp', section 'chunks', chunk 0, byte 32) (glob)
  [3]

The chunks of a file from a pipe are counted, up to the damage.

  $ cat numbers | blpk c -l 0 -z 1K - - | cat > piped.blp
  $ head -c 2000 piped.blp > cut.blp
  $ blpk info cut.blp
  kind:       bytes
  format:     blp 3
  block size: 1.0K (1024 bytes), not split
  typesize:   8
  codec:      blosclz, filter shuffle, the first chunk stored uncompressed
  checksum:   adler32
  room:       none: there is no offset table
  packed:     1.95K (2000 bytes)
  damaged:    the file ends too early: expected a chunk of '1040' bytes, found '924' (section 'chunks', chunk 1, byte 1076)
  [3]

  $ rm a.npy a.blp cut.blp meta numbers numbers.dat piped.blp
  $ ls -A
