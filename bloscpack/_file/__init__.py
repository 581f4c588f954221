"""Operations on one file: reading parts, streams, appending, repacking, archives."""
