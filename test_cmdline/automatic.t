Settings that fit the data.

  $ awk 'BEGIN { for (x = i = 1; i <= 40000; i++) { x = x * 16807 % 2147483647;
  >     printf "%d,%.2f,%s\n", i, x % 3000 / 100, x % 7 < 3 ? "north" : "south" } }' > t.csv
  $ size() { wc -c < "$1" | tr -d ' '; }

The default settings are those of release 0.16; --auto chooses others by trials.

  $ blpk compress t.csv default.blp
  $ blpk compress --auto t.csv auto.blp
  $ test $((10 * $(size auto.blp))) -lt $((7 * $(size default.blp))) && echo smaller
  smaller
  $ blpk compress --auto=ratio t.csv ratio.blp
  $ test $(size ratio.blp) -lt $(size auto.blp) && echo smaller
  smaller

Existing files get them, too; what an option sets stays.

  $ cp default.blp again.blp
  $ blpk repack --auto again.blp
  $ cmp again.blp auto.blp
  $ blpk repack --auto -c lz4 again.blp
  $ blpk info again.blp | grep codec
  codec:      lz4, filter none

A variable can make --auto the default; options of the command line win.

  $ export BLPK_DEFAULTS="--auto -n 2"
  $ blpk compress t.csv configured.blp
  $ cmp configured.blp auto.blp
  $ blpk < t.csv | blpk -d | cmp - t.csv
  $ blpk -f compress --no-auto t.csv configured.blp
  $ cmp configured.blp default.blp
  $ BLPK_DEFAULTS="--auot" blpk list auto.blp
  blpk: error: BLPK_DEFAULTS: '--auot' is no option of blpk
  [2]
