Metadata: any JSON value kept with the data.

  $ awk 'BEGIN { for (i = 1; i <= 1000; i++) print i }' > numbers
  $ echo '{"unit": "metre", "from": [1, 2]}' > meta
  $ blpk c -m meta numbers
  $ blpk d numbers.blp back
  blpk: Metadata:
  blpk: {'from': [1, 2], 'unit': 'metre'}

Values that are empty are kept, though decompressing doesn't show them.

  $ for value in '{}' '[]' '0' '""' 'false' 'true' '"text"'; do
  >   echo "$value" > value
  >   blpk -f c -m value numbers
  >   blpk -f d numbers.blp back
  >   blpk i numbers.blp | grep ^metadata
  > done
  metadata:   {}
  metadata:   []
  metadata:   0
  metadata:   ""
  metadata:   false
  blpk: Metadata:
  blpk: True
  metadata:   true
  blpk: Metadata:
  blpk: 'text'
  metadata:   "text"

Null is no metadata at all, and of a key that is there twice the last value counts.

  $ echo null > value
  $ blpk -f c -m value numbers
  blpk: metadata file 'value' is null: it counts as none
  $ blpk metadata numbers.blp
  blpk: error: the file has no metadata section (file 'numbers.blp')
  [1]
  $ echo '{"a": 1, "b": 0, "a": 2}' > value
  $ blpk -f c -m value numbers
  blpk: metadata file 'value': of the values of 'a' only the last counts
  $ blpk metadata --set value numbers.blp
  blpk: metadata file 'value': of the values of 'a' only the last counts
  $ blpk metadata --compact numbers.blp
  {"a":2,"b":0}

They may come from standard input, where the data don't.

  $ echo '[1]' | blpk -f c -m - numbers
  $ blpk metadata --compact numbers.blp
  [1]
  $ blpk c -m - - out < numbers
  blpk: error: data and metadata can't both be standard input
  [2]

Text beyond ASCII survives.

  $ printf '{"\303\251": "\342\230\203"}' > value
  $ blpk -f c -m value numbers
  $ blpk -f d numbers.blp back > shown
  $ python3 -c "print(ascii(open('shown', encoding='utf-8').read()))"
  "blpk: Metadata:\nblpk: {'\xe9': '\u2603'}\n"

Append replaces them, within the room that the file has.

  $ blpk -f c -z 1K -m meta numbers
  $ echo '{"unit": "foot"}' > other
  $ blpk a -m other numbers.blp numbers
  $ blpk -f d numbers.blp back
  blpk: Metadata:
  blpk: {'unit': 'foot'}
  $ cat numbers numbers | cmp - back

What can't be replaced leaves the data alone too.

  $ cp numbers.blp before
  $ blpk a -m other numbers.blp numbers
  blpk: error: you requested to update metadata, but this has not changed (file 'numbers.blp')
  [1]
  $ python3 -c "import json; print(json.dumps([str(i * i) for i in range(2000)]))" > big
  $ blpk a --no-grow -m big numbers.blp numbers
  *metadata section is too small to contain the metadata required: * (glob)
  [1]
  $ cmp numbers.blp before
  $ blpk -f c numbers
  $ cp numbers.blp before
  $ blpk a --no-grow -m other numbers.blp numbers
  blpk: error: unable to seek to metadata if it does not exist (file 'numbers.blp')
  [1]
  $ cmp numbers.blp before

A file without metadata is rewritten to get some, and so is one with too little space.

  $ blpk metadata --update 'unit="foot"' numbers.blp
  $ blpk metadata --set big numbers.blp
  *metadata section is too small to contain the metadata required: *--grow rewrites the file with more space* (glob)
  [1]
  $ blpk metadata --compact numbers.blp
  {"unit":"foot"}
  $ blpk metadata --grow --set big numbers.blp
  $ blpk metadata numbers.blp | python3 -c "import json, sys; print(len(json.load(sys.stdin)))"
  2000
  $ blpk append -m other numbers.blp numbers
  $ blpk metadata --compact numbers.blp
  {"unit":"foot"}
  $ blpk repack --no-metadata numbers.blp
  $ blpk metadata numbers.blp
  blpk: error: the file has no metadata section (file 'numbers.blp')
  [1]
  $ cat numbers numbers > both
  $ blpk -f d numbers.blp back
  $ cmp both back
  $ rm both

A file that is missing or not JSON.

  $ rm numbers.blp before
  $ blpk c -m nothing numbers
  blpk: error: metadata file 'nothing' does not exist!
  [1]
  $ echo '{' > value
  $ blpk c -m value numbers
  blpk: error: metadata file 'value' is not valid JSON: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)
  [1]
  $ blpk c -m . numbers
  blpk: error: '.': Is a directory
  [1]

  $ ls -A
  back
  big
  meta
  numbers
  other
  shown
  value
  $ rm back big meta numbers other shown value
  $ ls -A
