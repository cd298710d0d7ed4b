"""The coordinators of groups, share state and transactions: their runtime, and the services that
connect them to logs.
"""
