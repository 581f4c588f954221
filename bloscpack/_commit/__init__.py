"""All-or-nothing changes of files and datasets, by six rules.

==================  ================================  ==================================
module              rule                              used for
==================  ================================  ==================================
`replacing`         rename one file                   new files, repacking
`undo`              undo record in the file           appending to a file, metadata
`change`            one document                      changes of a dataset
`objects`           one document, in a version        datasets in a store of objects
`shared`            one shard                         several writers of an array
`new_folder`        a hidden folder is renamed        new datasets in a folder
==================  ================================  ==================================

Each module states the commit point of its rule, how an interrupted change is completed
or undone, and which users are trusted. `snapshot` reads beside a writer, `locking` and
`writer` keep other writers away. No module here imports one of datasets:
`change.Datasets` is what the rules ask about them.
"""
