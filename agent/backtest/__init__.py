"""How good a forecast is on recordings: episodes, alarms, and the figures that a forecaster answers for."""
