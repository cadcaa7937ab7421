"""The interactive report: one HTML file, made only from records. It opens from the file system without a network.

`claims` and `paper_tables` prepare the part about the papers, `progress` the part about runs at work, and `payload` the
runs themselves, each with its `repeat` command. `page` puts everything into `page.html`.
"""
