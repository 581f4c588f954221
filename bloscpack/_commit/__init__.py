"""All-or-nothing changes of files and datasets, by five rules.

==================  ================================  ==================================
module              rule                              used for
==================  ================================  ==================================
`replacing`         rename one file                   new files, repacking
`undo`              undo record in the file           appending to a file, metadata
`change`            one document                      changes of a dataset
`shared`            one shard                         several writers of an array
`new_folder`        a hidden folder is renamed        new datasets in a folder
==================  ================================  ==================================

Each module states the commit point of its rule, and how an interrupted change is
completed or undone. `folder_change` has the changes of a dataset in a folder, and
`objects` all about datasets in a store of objects. `snapshot` reads beside a writer,
`locking` and `writer` keep other writers away. `states` says what each call does,
`tree` reads the documents, `pin` notices changes; `access`, `ownership` and `temporary`
make new files. No module here imports one of datasets: `change.Datasets` has the
questions of the rules about them.
"""
