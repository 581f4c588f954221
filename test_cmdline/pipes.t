Pipes and named pipes as input and output.

  $ awk 'BEGIN { for (i = 1; i <= 100000; i++) print i }' > numbers
  $ header() { blpk info --json "$1" | sed -n "/\"header\"/,/}/s/^ *\"$2\": \([^,]*\),*$/\1/p"; }

What is read from a pipe becomes a file without offsets, as their number isn't known
before the end. What is read from a file becomes the same as under its own name.

  $ cat numbers | blpk c -z 64K /dev/stdin piped.blp
  $ blpk c -o -z 64K numbers
  $ cmp numbers.blp piped.blp
  $ blpk -f c -z 64K numbers
  $ blpk -f c -z 64K /dev/stdin piped.blp < numbers
  $ cmp numbers.blp piped.blp
  $ : | blpk c /dev/stdin nothing.blp
  $ blpk d nothing.blp
  $ wc -c < nothing | tr -d ' '
  0

A pipe may be at either end.

  $ cat numbers.blp | blpk d -e /dev/stdin back
  $ cmp back numbers
  $ blpk d numbers.blp /dev/stdout | cmp - numbers
  $ cat numbers.blp | blpk d -e /dev/stdin /dev/stdout | cmp - numbers

From a pipe to a pipe there is no going back to fill in the number of chunks.

  $ cat numbers | blpk c -z 64K /dev/stdin /dev/stdout | cat > through.blp
  $ header through.blp nchunks
  -1
  $ header through.blp offsets
  false
  $ blpk d through.blp
  $ cmp through numbers

Named pipes.

  $ mkfifo pipe
  $ cat numbers > pipe &
  $ blpk -f c -z 64K pipe piped.blp
  $ wait
  $ blpk d piped.blp
  $ cmp numbers piped
  $ cat pipe > from-pipe &
  $ blpk d numbers.blp pipe
  $ wait
  $ cmp from-pipe numbers
  $ test -p pipe

What is appended may come from a pipe.

  $ cat numbers | blpk a numbers.blp /dev/stdin
  $ blpk -f d numbers.blp back
  $ cat numbers numbers | cmp - back

Info reads from a pipe too.

  $ cat numbers.blp | blpk info /dev/stdin | head -n 3
  kind:       bytes
  format:     blp 3
  nchunks:    18

  $ rm back from-pipe nothing nothing.blp numbers numbers.blp pipe piped piped.blp \
  >   through through.blp
  $ ls -A
