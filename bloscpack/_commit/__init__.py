"""All-or-nothing changes of files and datasets, by six rules.

==================  ================================  ==================================
module              rule                              used for
==================  ================================  ==================================
`replacing`         rename one file                   new files, repacking
`undo`              undo record in the file           appending to a file, metadata
`new_files`         journal of new files              changes of a dataset in a folder
`guard`             one guard object                  datasets in a store of objects
`shared`            one shard                         several writers of an array
`new_folder`        a hidden folder is renamed        new datasets in a folder
==================  ================================  ==================================

Each module states the commit point of its rule, how an interrupted change is completed
or undone, and which users are trusted. `trust` has the table of users who may have
written the journal of a dataset, `snapshot` reads beside a writer, `locking` and
`writer` keep other writers away. No module here imports one of datasets:
`new_files.Datasets` is what the rules ask about them.
"""
