"""The page: its parts, its JSON, its protection, its cost, and the page in a real browser.

``test_api.py`` (JSON and HTML) and ``test_browser.py`` (Chromium) run on headrace and on Apache
Kafka 4.4.0, but for what Kafka cannot do:

=============================================  ========  =============================
view or action                                 headrace  Apache Kafka 4.4.0
=============================================  ========  =============================
overview, groups, topics                       both      both
a share group, a consumer group                both      both
what is in flight of a share group             both      both: said to be unknown
a topic, its records, a record                 both      both
where a record stands                          both      both: below the start offset
the list of actions, the API, the login        both      both
set and delete offsets                         both      both
change a setting                               both      both
produce a record                               both      both
release held records                           both      both: said to be impossible
redrive dead letters that a test has written   both      both
redrive dead letters of the broker             JSON      not tried
with TLS and a login (``test_secured.py``)     JSON      JSON, with ``--target kafka``
``serve --ui`` (``test_beside.py``)            JSON      has none
=============================================  ========  =============================

"both" means JSON and browser.
"""
