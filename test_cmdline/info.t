What a compressed file says about itself.

  $ awk 'BEGIN { for (i = 1; i <= 1000; i++) print i }' > numbers
  $ blpk c -l 0 -t 1 -z 1K numbers
  $ blpk info numbers.blp
  blpk: BloscpackHeader:
  blpk:     format_version: 3
  blpk:     offsets: True
  blpk:     metadata: False
  blpk:     checksum: 'adler32'
  blpk:     typesize: 1
  blpk:     chunk_size: 1.0K (1024B)
  blpk:     last_chunk: 821.0B (821B)
  blpk:     nchunks: 4
  blpk:     max_app_chunks: 40
  blpk: 'offsets':
  blpk: [384,1428,2472,3516,...]
  blpk: First chunk blosc header:
  blpk: OrderedDict([('version', 2), ('versionlz', 1), ('flags', 3), ('typesize', 1), ('nbytes', 1024), ('blocksize', 1024), ('ctbytes', 1040)])
  blpk: First chunk blosc flags: 
  blpk: OrderedDict([('byte_shuffle', True), ('pure_memcpy', True), ('bit_shuffle', False), ('split_blocks', False), ('codec', 'blosclz')])

The first five offsets are shown, and the metadata if there are any.

  $ echo '{"unit": "metre", "from": [1, 2]}' > meta
  $ blpk -f c -l 0 -z 512 -k sha256 -m meta numbers
  $ blpk i numbers.blp
  blpk: BloscpackHeader:
  blpk:     format_version: 3
  blpk:     offsets: True
  blpk:     metadata: True
  blpk:     checksum: 'sha256'
  blpk:     typesize: 8
  blpk:     chunk_size: 512.0B (512B)
  blpk:     last_chunk: 309.0B (309B)
  blpk:     nchunks: 8
  blpk:     max_app_chunks: 80
  blpk: 'offsets':
  blpk: [1062,1622,2182,2742,3302,...]
  blpk: Metadata:
  blpk: {'from': [1, 2], 'unit': 'metre'}
  blpk: MetadataHeader:
  blpk:     magic_format: b'JSON'
  blpk:     meta_options: '00000000'
  blpk:     meta_checksum: 'adler32'
  blpk:     meta_codec: 'None'
  blpk:     meta_level: 6
  blpk:     meta_size: 29.0B (29B)
  blpk:     max_meta_size: 290.0B (290B)
  blpk:     meta_comp_size: 29.0B (29B)
  blpk:     user_codec: b''
  blpk: First chunk blosc header:
  blpk: OrderedDict([('version', 2), ('versionlz', 1), ('flags', 19), ('typesize', 8), ('nbytes', 512), ('blocksize', 512), ('ctbytes', 528)])
  blpk: First chunk blosc flags: 
  blpk: OrderedDict([('byte_shuffle', True), ('pure_memcpy', True), ('bit_shuffle', False), ('split_blocks', True), ('codec', 'blosclz')])

Any name will do, and -v adds little.

  $ blpk -f c -o -k None -l 0 numbers
  $ mv numbers.blp numbers.dat
  $ blpk -v -n 1 info numbers.dat
  blpk: using 1 thread
  blpk: BloscpackHeader:
  blpk:     format_version: 3
  blpk:     offsets: False
  blpk:     metadata: False
  blpk:     checksum: 'None'
  blpk:     typesize: 8
  blpk:     chunk_size: 3.8K (3893B)
  blpk:     last_chunk: 3.8K (3893B)
  blpk:     nchunks: 1
  blpk:     max_app_chunks: 0
  blpk: First chunk blosc header:
  blpk: OrderedDict([('version', 2), ('versionlz', 1), ('flags', 3), ('typesize', 8), ('nbytes', 3893), ('blocksize', 3888), ('ctbytes', 3909)])
  blpk: First chunk blosc flags: 
  blpk: OrderedDict([('byte_shuffle', True), ('pure_memcpy', True), ('bit_shuffle', False), ('split_blocks', False), ('codec', 'blosclz')])
  blpk: done

Nothing is checked but what is shown: damage further on is not seen.

  $ head -c 1000 numbers.dat > cut.blp
  $ blpk info cut.blp > /dev/null
  $ blpk decompress cut.blp
  blpk: error: the file ends too early: * (file 'cut.blp', section 'chunks', chunk 0, byte 32) (glob)
  [3]

  $ rm cut.blp meta numbers numbers.dat
  $ ls -A
