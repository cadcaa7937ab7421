"""The interactive report: one HTML file, made only from records. It opens from the file system without a network.

`claims` prepares the published numbers, and `payload` the runs, each with its `repeat` command. `page` puts both
into `page.html`.
"""
