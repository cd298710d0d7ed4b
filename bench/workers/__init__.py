"""Workers side by side: headrace's on headrace and on Apache Kafka, and those of Celery, taskiq and
dramatiq, each with an empty function and a JSON payload: `python -m bench.workers.run`.
"""
