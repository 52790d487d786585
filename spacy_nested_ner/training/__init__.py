"""Optimizer and learning rate schedules that the papers' training recipes need."""
