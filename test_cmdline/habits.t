Habits from other programs, and mistakes.

  $ seq 1000 > in
  $ blpk compress in -o out.blp
  $ ls
  in
  out.blp
  $ blpk compress --level 9 -f in
  $ blpk comprss in
  usage: blpk [-h] [options] SUBCOMMAND ...
  blpk: error: there is no subcommand 'comprss'; did you mean 'compress'?
  [2]
  $ blpk compress --clevl 3 in
  usage: blpk [-h] [options] SUBCOMMAND ...
  blpk: error: unrecognized arguments: --clevl; did you mean '--clevel'?
  [2]
  $ blpk compress in.blp
  blpk: 'in.blp' is a Bloscpack file already, and is compressed again
  $ rm in.blp.blp
  $ blpk compress --skip-existing in
  blpk: skipped 'in': its output exists
  $ blpk compress --update in
  blpk: skipped 'in': its output is not older
  $ gzip -k in
  $ blpk info in.gz
  blpk: error: 'in.gz' is not a Bloscpack file: it is a gzip file
  [1]
  $ blpk verify in.gz missing.blp
  blpk: error: 'in.gz' is not a Bloscpack file: it is a gzip file
  blpk: error: file 'missing.blp' does not exist!
  [1]
  $ blpk verify --json in.gz | grep -c '"'
  blpk: error: 'in.gz' is not a Bloscpack file: it is a gzip file
  15

Options of gzip stand in place of a verb where they are clear; no input is removed.

  $ blpk -9kf in
  $ ls
  in
  in.blp
  in.gz
  out.blp
  $ blpk -dc in.blp | tail -1
  1000
  $ blpk -dc < in.blp | tail -1
  1000
  $ blpk -t in.blp out.blp
  in.blp: ok (1 chunk, 3.8K)
  out.blp: ok (1 chunk, 3.8K)
  $ blpk -l in.blp | wc -l | tr -d ' '
  2
  $ blpk -df in.blp
  $ blpk -t 4 in.blp nothing 2>&1 | tail -1
  blpk: error: there is no subcommand '4'; name the subcommand in front: 'blpk compress -t 4 in.blp nothing'
  $ blpk in 2>&1 | tail -1
  blpk: error: there is no subcommand 'in'; name the subcommand in front: 'blpk compress in'
  $ blpk --auto compress in 2>&1 | tail -1
  blpk: error: unrecognized arguments: --auto; name the subcommand in front: 'blpk compress --auto in'
  $ blpk --wait 3 append in.blp in 2>&1 | tail -1
  blpk: error: there is no subcommand '3'; name the subcommand in front: 'blpk append --wait 3 in.blp in'
  $ blpk ls in 2>&1 | tail -1
  blpk: error: there is no subcommand 'ls'; did you mean 'list'?
  $ cat in | blpk -d
  blpk: error: * this might not be a bloscpack compressed file; without -d the bytes are packed, and 'blpk convert' reads other formats (glob)
  [1]
  $ blpk < in | head -c 300 | blpk -d
  blpk: error: * 'blpk recover FILE NEW' saves what is intact in a file (glob)
  [3]

A file without room grows, a missing one is made, and a file from a pipe is appended to.

  $ blpk compress --max-app-chunks 0 -z 1K -f in
  $ for i in 1 2 3 4 5 6 7 8 9 10 11 12 13; do blpk append in.blp in; done
  $ blpk decompress in.blp - | wc -l | tr -d ' '
  14000
  $ blpk compress --max-app-chunks 0 -z 1K -f in
  $ blpk append --no-grow in.blp in
  blpk: error: not enough space: '4' chunks are to be appended, but the offset table has room for '0' (file 'in.blp')
  [1]
  $ blpk append --create new.blp in
  $ blpk append --create new.blp in
  $ blpk decompress new.blp - | wc -l | tr -d ' '
  2000
  $ cat in | blpk > pipe.blp
  $ blpk append pipe.blp in
  $ blpk decompress pipe.blp - | wc -l | tr -d ' '
  2000

recover leaves a note of what is missing.

  $ blpk compress -f -z 1K in
  $ printf '????' | dd of=in.blp bs=1 seek=1500 conv=notrunc 2>/dev/null
  $ blpk recover in.blp saved.blp > /dev/null
  [3]
  $ blpk verify saved.blp
  saved.blp: ok (4 chunks, 3.8K)
    note: recovered from damage: bytes 2048 to 3072 are filled with bytes 0 (section 'metadata')
  $ blpk info saved.blp | grep recovered
  metadata:   {"bloscpack_recovered":{"certain":true,"fill":0,"filled":[[2048,3072]],"left_out":[],"metadata_lost":false,"unit":"bytes"}}

Verbs for files name those for datasets and trees.

  $ printf '\1\0\0\0' | blpk bigfile create tree ID u4
  $ blpk info tree
  blpk: error: 'tree' is a BigFile tree, which 'blpk bigfile' reads
  [1]
  $ blpk verify tree
  tree: ok (1 block, 1 data file, 4 bytes)
  $ blpk convert tree tree.zarr
  $ blpk repack tree.zarr
  blpk: error: 'tree.zarr' is a dataset, which 'blpk convert' reads
  [1]
  $ blpk decompress tree.zarr
  blpk: error: 'tree.zarr' is a dataset, which 'blpk convert' reads
  [1]
