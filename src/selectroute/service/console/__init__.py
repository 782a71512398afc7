"""Console of a service: pages for a browser, made of the calls of the service's own API.

::

    browser ──▶ console.py: cookie, origin, headers ──▶ subscriptions.py, …: the screens
                                                             │ page.py: calls with the caller's own token
                                                             └──▶ the API, in the same process

The pages can do what the API can, and no more: roles, topics and limits are checked there. Without the extra
``console`` the service has no pages but those of ``service.system``.
"""
