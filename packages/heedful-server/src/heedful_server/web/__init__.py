"""The pages of heedful in a browser: loops, lessons, proof, and what needs a review.

All that belongs to a page is in this room:

- `loop_list.py`, `loop_page.py`, `memory_pages.py`, `lesson_page.py`, `inbox.py`,
  `run_page.py`, `trace.py`, `work.py`, `access.py`: the pages of a subject. A function
  makes the data of a page, and another does what one of its forms asks for.
  `matrix.py` makes the matrix of a loop, and `loop_reading.py` reads what its page
  shows.
- `templates/ui/NAME.html.j2`: what a page shows of its data; `page_templates.py` has
  the filters. The frame and the style are those of the reports, in `pages/templates/`.
- `static/`: the script and the icon.
- `counts.py`, `counts.sql`: what a page counts that no route of the API answers.
- `lists.py`, `templates/ui/list.html.j2`, `rows.html.j2`: what all lists share.
  `loop_summaries.py`: what the list of loops shows.
- `site_map.py`: the tables of all pages and forms; `menu.py`: the pages of the menu.
- `site.py`: who may see a page, and the way from an address to a page; `addresses.py`
  reads what a request asks for.
"""
