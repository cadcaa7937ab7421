"""The interactive report: one HTML file, made from records alone, that opens from the file system without a network.

`claims` and `paper_tables` prepare what the page says of the papers, `progress` what it says of runs at work, `payload`
the runs themselves with the `repeat` command of each; `page` puts all of it into `page.html`.
"""
